#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs steps of tools/gpu_check on the simulated device: those that judge
# numbers and memory, not speed.
set -euo pipefail
export TESSERA_SIM_DEVICE=1 SIM_PRINT=1
for step in equal memory precision parallel; do
  "$1" "$step" cuda "$TEST_TMPDIR" >"$TEST_TMPDIR/out" 2>"$TEST_TMPDIR/err" ||
    { cat "$TEST_TMPDIR/err" && exit 1; }
  cat "$TEST_TMPDIR/out"
  grep -q '"ok": \?true' "$TEST_TMPDIR/out"
  if grep 'race:' "$TEST_TMPDIR/err"; then exit 1; fi
done
