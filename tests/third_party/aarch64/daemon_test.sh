#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The client for aarch64 and the daemon on this machine work together. The emulator has
# no openat2, without which the daemon for aarch64 serves nothing: it shows its help.
set -euo pipefail
# shellcheck source=emulator.sh
. tests/third_party/aarch64/emulator.sh

readonly root=$TEST_TMPDIR/root
mkdir "$root"
cp -rL tests/golden/torch-2.11/sharded "$root/src"

help=$("${emulated[@]}" aarch64/dcp-server --help) || fail "help: $?"
[[ $help == "$(server/dcp-server --help)" ]] || fail "$help"

exec {log}< <(exec server/dcp-server --root="$root" \
  --state-dir="$TEST_TMPDIR/state" --listen=127.0.0.1:0 2>&1)
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
address=''
while [[ -z $address ]] && read -r -t 60 line <&"$log"; do
  echo "$line"
  [[ ! $line =~ event=start\ address=([^ ]+) ]] || address=${BASH_REMATCH[1]}
done
[[ -n $address ]] || fail "the daemon does not start"

convert() { "${emulated[@]}" aarch64/dcp-convert "$@" --server "$address"; }
convert inspect "$root/src" || fail "inspect: $?"
convert reshard "$root/src" "$root/dst" --mesh replicate=2,shard=3 ||
  fail "reshard: $?"
convert verify "$root/dst" || fail "verify: $?"
convert jobs list || fail "jobs list: $?"
