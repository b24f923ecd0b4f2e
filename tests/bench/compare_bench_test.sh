#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs compare_bench_test.py; it needs no package.
set -euo pipefail
exec /usr/bin/python3 -B tests/bench/compare_bench_test.py
