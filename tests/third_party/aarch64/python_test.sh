#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The wheel for aarch64 works with a Python for aarch64.
set -euo pipefail
# shellcheck source=emulator.sh
. tests/third_party/aarch64/emulator.sh

readonly python=$PWD/external/python_aarch64
cp -rL tests/golden/torch-2.11 "$TEST_TMPDIR/golden"
unzip -q python/wheel_aarch64/tessera-*-py3-none-manylinux_2_28_aarch64.whl \
  -d "$TEST_TMPDIR/package"
PYTHONPATH=$TEST_TMPDIR/package qemu-aarch64-static -L "$python" \
  "$python/usr/bin/python3.11" -B tests/third_party/aarch64/python_test.py \
  "$TEST_TMPDIR/golden" || fail "python: $?"
