#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that the first code block of fsdp/README.md is the example's code, and
# that the example learns, alone and on two ranks.
set -euo pipefail

readonly program=fsdp/examples/quick_start
readonly readme=fsdp/README.md

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# Compares the first C++ block of the page with the file after its head.
diff <(sed -n '/^```cpp$/,/^```$/p' "$readme" | sed '/^```$/q' | sed '/^```/d') \
  <(sed '1,/^$/d' "$program.cc") || fail "$readme does not show $program.cc"

# falls FILE: whether the loss at step 30 is below half of that at step 10.
falls() {
  awk '/^step/ { loss[$2] = $4 }
       END { exit !(30 in loss && loss[30] < loss[10] / 2) }' "$1"
}

"$program" >"$TEST_TMPDIR/alone" || fail "alone: exit code $?"
falls "$TEST_TMPDIR/alone" || fail "alone: $(cat "$TEST_TMPDIR/alone")"

export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1
exec {held}< <(/usr/bin/python3 -B tests/testing/held_port.py)
read -r MASTER_PORT <&"$held"
export MASTER_PORT
RANK=1 timeout 120 "$program" >"$TEST_TMPDIR/rank1" &
RANK=0 timeout 120 "$program" >"$TEST_TMPDIR/rank0" || fail "rank 0: $?"
wait $! || fail "rank 1: $?"
falls "$TEST_TMPDIR/rank0" || fail "two ranks: $(cat "$TEST_TMPDIR/rank0")"
[[ ! -s $TEST_TMPDIR/rank1 ]] || fail "rank 1 printed"
