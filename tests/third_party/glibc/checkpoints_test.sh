#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dcp-convert and fsdp-config with an older glibc: every verb that reads or writes
# over every golden checkpoint.
set -euo pipefail
# shellcheck source=older_glibc.sh
. tests/third_party/glibc/older_glibc.sh
make_older external/glibc/*.so.*

# Bazel gives links to files; inside a checkpoint links are refused.
readonly work=$TEST_TMPDIR/work
mkdir "$work"
cp -rL tests/golden "$work/golden"

# convert ARGUMENT...: prints what failed.
convert() {
  local code=0
  "${with_older[@]}" tools/dcp_convert/dcp-convert "$@" >"$work/log" 2>&1 ||
    code=$?
  [[ $code == 0 ]] || echo "$*: exit code $code: $(cat "$work/log")"
  return "$code"
}

num_checkpoints=0
for source in "$work"/golden/torch-*/{sharded,train,safetensors_items,hugging_face,archive.pt,legacy.pt}; do
  [[ -e $source ]] || continue
  num_checkpoints=$((num_checkpoints + 1))
  convert inspect "$source"
  # Some files have no checksums.
  convert verify "$source" || [[ $? == 6 ]]
  convert convert "$source" "$work/dcp" --to dcp --mesh shard=3
  convert verify "$work/dcp"
  convert diff "$source" "$work/dcp"
  convert consolidate "$work/dcp" "$work/one.pt" --to pt
  # What a .pt nests in lists has other names when it comes out of DCP.
  [[ $source == *.pt ]] || convert diff "$source" "$work/one.pt"
  rm -rf "$work/dcp" "$work/one.pt"
done
[[ $num_checkpoints -ge 30 ]] || fail "$num_checkpoints checkpoints"

for arguments in --version --licenses --help; do
  found=$("${with_older[@]}" tools/fsdp_config/fsdp-config "$arguments") ||
    fail "fsdp-config $arguments: $?"
  [[ $found == "$(tools/fsdp_config/fsdp-config "$arguments")" ]] ||
    fail "fsdp-config $arguments: $found"
done
