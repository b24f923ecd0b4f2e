#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs parallel_test.py; it needs no package.
set -euo pipefail
exec /usr/bin/python3 -B tests/fsdp/examples/parallel_test.py
