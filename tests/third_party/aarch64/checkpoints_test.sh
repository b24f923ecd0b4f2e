#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dcp-convert for aarch64 makes the same bytes of every golden checkpoint and dialect
# as the one for this machine, and refuses the same ones in the same words.
set -euo pipefail
# shellcheck source=emulator.sh
. tests/third_party/aarch64/emulator.sh

# Bazel gives links to files; inside a checkpoint links are refused.
readonly work=$TEST_TMPDIR/work
mkdir "$work" "$work/here" "$work/there"
cp -rL tests/golden "$work/golden"
ln -s "$PWD/tools/dcp_convert/dcp-convert" "$work/convert"
cd "$work"
there=("${emulated[@]}" "$OLDPWD/aarch64/dcp-convert")

num_done=0 num_refused=0 failures=0
differ() {
  echo "$*"
  failures=$((failures + 1))
}

# both ARGUMENT...: runs a command on both machines, each in a folder of its own.
# Times, memory, and the random names of digests differ.
both() {
  local here_code=0 there_code=0
  (cd here && ../convert "$@" >log 2>&1) || here_code=$?
  (cd there && "${there[@]}" "$@" >log 2>&1) || there_code=$?
  sed -i -E 's/ in [0-9.]+ s.*//' {here,there}/log
  [[ $here_code == "$there_code" ]] &&
    diff -r -x .metadata -x '.digests-*' here there >difference ||
    differ "$*: exit codes $here_code and $there_code: $(cat difference)"
  if [[ $here_code == 0 ]]; then
    num_done=$((num_done + 1))
  else
    num_refused=$((num_refused + 1))
  fi
}

num_sources=0
for source in golden/torch-*/* golden/dialects/*/*; do
  [[ ! $source =~ \.expected\.|\.layout\.json$|\.py$|\.md$|/BUILD ]] || continue
  num_sources=$((num_sources + 1))
  both verify "../$source"
  both convert "../$source" one.pt --to pt
  both convert "../$source" dcp --to dcp --mesh shard=3
  [[ ! -e there/dcp ]] || ./convert diff here/dcp there/dcp >log 2>&1 ||
    differ "$source: $(cat log)"
  rm -rf {here,there}/*
done
echo "$num_sources checkpoints: $num_done commands done, $num_refused refused"
[[ $failures == 0 ]] || fail "$failures commands differ"
[[ $num_sources -ge 77 && $num_done -ge 200 ]] || fail "too few"
