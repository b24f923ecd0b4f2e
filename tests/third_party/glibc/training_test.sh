#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# train_llama on two ranks with an older glibc and libstdc++, and LibTorch: it
# trains and saves, and dcp-convert reads the checkpoint.
set -euo pipefail
# shellcheck source=older_glibc.sh
. tests/third_party/glibc/older_glibc.sh
make_older external/glibc/*.so.*

cp tests/third_party/glibc/training_test.sh "$TEST_TMPDIR/text"
export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 OMP_NUM_THREADS=1
exec {held}< <(/usr/bin/python3 -B tests/testing/held_port.py)
read -r MASTER_PORT <&"$held"
export MASTER_PORT
train() {
  RANK=$1 LOCAL_RANK=$1 "${with_older[@]}" fsdp/examples/train_llama --dim=32 --layers=2 \
    --ffn-dim=48 --seq-len=16 --batch=4 --lr=1e-3 --steps=3 --save-every=3 \
    --data="$TEST_TMPDIR/text" --checkpoint-dir="$TEST_TMPDIR/run" \
    >"$TEST_TMPDIR/rank$1" 2>&1
}
train 1 &
train 0 || fail "rank 0: $?: $(cat "$TEST_TMPDIR"/rank[01])"
wait $! || fail "rank 1: $?: $(cat "$TEST_TMPDIR"/rank1)"
tools/dcp_convert/dcp-convert verify "$TEST_TMPDIR/run/step-3" ||
  fail "verify: $?: $(ls "$TEST_TMPDIR/run")"
