#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The daemon with an older glibc, and dcp-convert as its client: it serves, works,
# shows metrics, and drains.
set -euo pipefail
# shellcheck source=older_glibc.sh
. tests/third_party/glibc/older_glibc.sh
make_older external/glibc/*.so.*

readonly root=$TEST_TMPDIR/root
mkdir "$root"
cp -rL tests/golden/torch-2.11/sharded "$root/src"

exec {log}< <(exec "${with_older[@]}" server/dcp-server --root="$root" \
  --state-dir="$TEST_TMPDIR/state" --listen=127.0.0.1:0 \
  --metrics-listen=127.0.0.1:0 2>&1)
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
metrics='' address=''
while [[ -z $address ]] && read -r -t 60 line <&"$log"; do
  echo "$line"
  [[ ! $line =~ event=metrics\ address=([^ ]+) ]] || metrics=${BASH_REMATCH[1]}
  [[ ! $line =~ event=start\ address=([^ ]+) ]] || address=${BASH_REMATCH[1]}
done
[[ -n $metrics && -n $address ]] || fail "the daemon does not start"

convert() { "${with_older[@]}" tools/dcp_convert/dcp-convert "$@"; }
convert inspect "$root/src" --server "$address" || fail "inspect: $?"
convert reshard "$root/src" "$root/dst" --mesh replicate=2,shard=3 \
  --server "$address" || fail "reshard: $?"
convert jobs list --server "$address" || fail "jobs list: $?"
convert verify "$root/dst" || fail "verify: $?"
text=$(curl --silent --compressed "http://$metrics/metrics") ||
  fail "metrics: $?"
grep '^tessera_jobs_total.* 1$' <<<"$text" || fail "metrics: $text"

kill "$server"
code=0
wait "$server" || code=$?
text=$(cat <&"$log")
[[ $code == 0 && $text == *"event=signal name=TERM"* ]] ||
  fail "the daemon ended with $code: $text"
