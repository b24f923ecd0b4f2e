#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs config_test.py; it needs no package.
set -euo pipefail
exec /usr/bin/python3 -B tests/fsdp/examples/config_test.py
