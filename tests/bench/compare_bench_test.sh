#!/usr/bin/env bash
# Runs compare_bench_test.py; it needs no package.
set -euo pipefail
exec /usr/bin/python3 -B tests/bench/compare_bench_test.py
