#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs check_test.py; it needs no package.
set -euo pipefail
exec /usr/bin/python3 -B tests/fsdp/gpu/check_test.py
