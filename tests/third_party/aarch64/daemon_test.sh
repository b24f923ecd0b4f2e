#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The daemon for aarch64 serves a client on this machine, and ends by a signal.
set -euo pipefail
# shellcheck source=emulator.sh
. tests/third_party/aarch64/emulator.sh

readonly root=$TEST_TMPDIR/root
mkdir "$root"
cp -rL tests/golden/torch-2.11/sharded "$root/src"

exec {log}< <(exec "${emulated[@]}" aarch64/dcp-server --root="$root" \
  --state-dir="$TEST_TMPDIR/state" --listen=127.0.0.1:0 2>&1)
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
address=''
while [[ -z $address ]] && read -r -t 120 line <&"$log"; do
  echo "$line"
  [[ ! $line =~ event=start\ address=([^ ]+) ]] || address=${BASH_REMATCH[1]}
done
[[ -n $address ]] || fail "the daemon does not start"

convert() { tools/dcp_convert/dcp-convert "$@" --server "$address"; }
convert inspect "$root/src" || fail "inspect: $?"
convert reshard "$root/src" "$root/dst" --mesh replicate=2,shard=3 ||
  fail "reshard: $?"
convert jobs list || fail "jobs list: $?"
tools/dcp_convert/dcp-convert diff "$root/src" "$root/dst" || fail "diff: $?"

kill "$server"
code=0
wait "$server" || code=$?
text=$(cat <&"$log")
[[ $code == 0 && $text == *"event=signal name=TERM"* ]] ||
  fail "the daemon ended with $code: $text"
