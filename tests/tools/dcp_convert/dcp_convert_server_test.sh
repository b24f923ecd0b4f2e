#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs dcp-convert here and with --server, against a real dcp-server: the same
# command gives the same output, files and exit code.

set -uo pipefail

readonly kTool=$PWD/tools/dcp_convert/dcp-convert
readonly kServer=$PWD/server/dcp-server
readonly kGolden=$PWD/tests/golden
unset TESSERA_SERVER TESSERA_TOKEN
# A socket's path is short, Bazel's folders are not.
work=$(mktemp -d /tmp/dcp_convert_server.XXXXXX)
readonly work
server_pid=
trap '[[ -z $server_pid ]] || kill -KILL "$server_pid"; rm -rf "$work"' EXIT
mkdir "$work/data"
cp -rL "$kGolden/torch-2.11" "$work/data/golden"
cp -rL "$kGolden/mappings/llama" "$work/data/llama"
chmod -R u+w "$work/data"
cd "$work/data" || exit 1
readonly data=$PWD
num_failed=0

fail() {
  echo "FAILED: $*"
  num_failed=$((num_failed + 1))
}

# start_server OPTIONS...: returns when it serves.
start_server() {
  mkfifo "$work/log.fifo"
  "$kServer" --root="$data" --state-dir="$work/state" \
    --listen="unix:$work/socket" "$@" 2>"$work/log.fifo" &
  server_pid=$!
  while read -r line; do
    echo "$line" >>"$work/log"
    [[ $line != *event=start* ]] || break
  done <"$work/log.fifo" 3<"$work/log.fifo"
}

# Removes values that differ from run to run (times, rates, memory) and values
# that a server does not send (whole objects and the memory of indexes), and
# sorts: a server does not send the order of a checkpoint's properties.
steady() {
  sed -E -e 's/ in [0-9]+ lanes?$//' -e 's/in [0-9.:]+( s)?/in TIME/' \
    -e 's/"seconds":[0-9.e-]+/"seconds":0/g' \
    -e 's/\([0-9.]+ .?B\/s\)/(RATE)/' -e 's/peak memory .*/peak memory/' \
    -e 's/"peak_memory_bytes":[0-9]+/"peak_memory_bytes":0/' \
    -e 's/"num_lanes":[0-9]+/"num_lanes":0/' \
    -e 's/read [0-9.]+ .?B, wrote/read SOME, wrote/' \
    -e 's/"bytes_read":[0-9]+/"bytes_read":0/' \
    -e 's/, using .* of memory/, using/' \
    -e 's/"memory_bytes":[0-9]+/"memory_bytes":0/' "$1" | python3 -c '
import json, sys
LOCAL = {"object", "read", "unreadable", "objects_note", "object_limits",
         "index_bytes"}
def shared(value):
    if isinstance(value, list):
        return [shared(element) for element in value]
    if isinstance(value, dict):
        return {k: shared(v) for k, v in value.items() if k not in LOCAL}
    return value
for line in sorted(sys.stdin):
    if line.startswith("{"):
        line = json.dumps(shared(json.loads(line)), sort_keys=True) + "\n"
    print(line, end="")'
}

# same CODE ARGUMENTS...: OUT among the arguments is a different place in each
# of the two runs.
same() {
  local want=$1 got
  shift
  rm -rf near afar
  mkdir near afar
  "$kTool" "${@//OUT/$data/near}" >near.out 2>near.err
  got=$?
  [[ $got == "$want" ]] || fail "$*: here $got, want $want: $(cat near.err)"
  "$kTool" "${@//OUT/$data/afar}" --server "unix:$work/socket" \
    >afar.out 2>afar.err
  got=$?
  [[ $got == "$want" ]] || fail "$*: there $got, want $want: $(cat afar.err)"
  diff <(steady near.out | sed "s,$data/near,OUT,g") \
    <(steady afar.out | sed "s,$data/afar,OUT,g") || fail "$*: other output"
  diff <(files near) <(files afar) || fail "$*: other files"
}

# Digest files have random names.
files() {
  (cd "$1" && find . -type f | sed -E 's/(digests)-.*/\1/' | sort)
}

test_verbs_that_read() {
  local source code
  for source in sharded train hugging_face archive.pt legacy.pt; do
    # Some have no checksums.
    code=0
    [[ $source == hugging_face || $source == legacy.pt ]] && code=6
    same "$code" verify "$data/golden/$source"
    same 0 inspect "$data/golden/$source"
    same 0 inspect "$data/golden/$source" --json --chunks
  done
  same 0 diff "$data/golden/train" "$data/golden/train"
  same 1 diff "$data/golden/train" "$data/golden/sharded" --json
}

test_verbs_that_write() {
  same 0 convert "$data/golden/train" OUT/a.pt
  same 0 consolidate "$data/golden/train" OUT/b.pt --json
  same 0 reshard "$data/golden/train" OUT/c --mesh replicate=2,shard=2
  same 0 reshard "$data/golden/train" OUT/tp --mesh dp=2,tp=2 \
    --place 'model.up.weight=tp:S(0),dp:S(0)'
  echo 'up: colwise' >"$data/plan.yaml"
  same 0 reshard "$data/golden/train" OUT/plan --mesh dp=2,tp=2 \
    --tp-plan "$data/plan.yaml"
  same 0 reshard "$data/golden/train" OUT/experts --mesh fsdp=4 \
    --mesh experts:efsdp=2,ep=2 \
    --place 'model.up.*@experts=ep:S(0),efsdp:S(0)'
  same 0 reshard "$data/golden/train" OUT/c --mesh shard=3 --plan
  same 0 dcp_to_torch "$data/golden/train" OUT/d
  same 0 torch_to_dcp "$data/golden/archive.pt" OUT/e
  same 0 convert "$data/golden/train" OUT/f --to safetensors \
    --drop-non-tensors --cast bf16 --max-shard-size 1KB
}

# The rule file is read here, and the model's config.json there.
test_mappings() {
  local -r llama=$data/llama/hf.safetensors
  same 0 convert "$llama" OUT/a --to dcp --map llama-hf-to-torchtitan \
    --set vocab_multiple=64
  same 0 convert "$llama" OUT/a --to dcp --map llama-hf-to-megatron --plan \
    --json
  same 0 consolidate "$llama" OUT/b.safetensors --map llama-hf-to-meta \
    --at meta=model.
  "$kTool" maps show llama >"$work/mine.yaml"
  same 0 reshard "$llama" OUT/c --mesh dp=2 --map-file "$work/mine.yaml" \
    --from-side hf --to-side megatron --part model
  "$kTool" convert "$llama" there.safetensors --map llama-hf-to-meta
  same 0 diff "$llama" "$data/there.safetensors" --map llama-hf-to-meta
  same 1 diff "$llama" "$data/there.safetensors" --map llama-hf-to-torchtitan
  mkdir bare
  cp "$llama" bare
  same 3 convert "$data/bare/hf.safetensors" OUT/d --to dcp \
    --map llama-hf-to-meta
  same 0 convert "$data/bare/hf.safetensors" OUT/d --to dcp \
    --map llama-hf-to-meta --config "$data/llama/config.json"
  printf '%s\n' 'tessera-mapping: 1' 'name: other' 'sides: {a: , b: }' \
    'rules:' '- {a: wte.weight, b: emb.weight}' >"$work/other.yaml"
  same 3 convert "$llama" OUT/f --to dcp --map-file "$work/other.yaml" \
    --from-side a --to-side b
  same 0 convert "$llama" OUT/h --to dcp --map llama-hf-to-megatron --check
  same 0 consolidate "$llama" OUT/h.safetensors --map llama-hf-to-meta \
    --check --json
  cat >"$work/cut.yaml" <<'END'
tessera-mapping: 1
name: cut
params: {v: 44, pad: 6}
sides: {plain: , padded: }
rules:
- plain: [{table: v c}, {=0: pad c}]
  padded: {lm_head.weight: (v + pad) c}
END
  same 5 convert "$llama" OUT/g --to dcp --map-file "$work/cut.yaml" \
    --from-side padded --to-side plain --unmatched drop --check-padding
  echo 'rulez: 1' >>"$work/mine.yaml"
  same 2 convert "$llama" OUT/e --to dcp --map-file "$work/mine.yaml" \
    --from-side hf --to-side meta
}

test_refusals() {
  same 3 inspect "$data/none"
  same 3 convert "$data/none" OUT/x.pt
  same 2 convert "$data/golden/train" OUT/x.pt --include 'nothing*'
  same 2 reshard "$data/golden/train" OUT/x --mesh dp=2,tp=2
  same 2 reshard "$data/golden/train" OUT/x --mesh fsdp=4 --mesh e:ep=2 \
    --place '*@e=S(0)'
  touch "$data/there.pt"
  same 5 convert "$data/golden/train" "$data/there.pt"
  same 2 inspect
}

# One bit of a name is wrong.
test_damage() {
  local file
  "$kTool" convert "$data/golden/train" damaged.safetensors \
    --drop-non-tensors >out 2>err || fail "$(cat err)"
  "$kTool" convert "$data/golden/train" damaged --to dcp >out 2>err ||
    fail "$(cat err)"
  for file in damaged.safetensors damaged/.metadata; do
    LC_ALL=C sed -i s/model.up/model.tp/ "$file"
    same 1 verify "$data/${file%/*}"
    same 0 inspect "$data/${file%/*}"
    same 3 convert "$data/${file%/*}" OUT/a.pt
    same 3 reshard "$data/${file%/*}" OUT/a --mesh dp=2
  done
}

# After those that write.
test_jobs() {
  "$kTool" jobs list --server "unix:$work/socket" >out 2>err ||
    fail "jobs list: $(cat err)"
  grep -q 'RESHARD *SUCCEEDED' out || fail "no reshard in $(cat out)"
  local job
  job=$(grep -o 'operations/[^ ]*' out | head -1)
  TESSERA_SERVER=unix:$work/socket "$kTool" jobs wait "$job" --json >out 2>err ||
    fail "jobs wait $job: $(cat err)"
  grep -q "\"name\":\"$job\"" out || fail "no $job in $(cat out)"
  local -r none=operations/f47ac10b-58cc-4372-a567-0e02b2c3d479
  "$kTool" jobs cancel $none --server "unix:$work/socket" 2>err
  [[ $? == 3 ]] || fail "jobs cancel: $(cat err)"
  grep -q '(JOB_NOT_FOUND)$' err || fail "no reason in $(cat err)"
  "$kTool" jobs cancel operations/none --json --server "unix:$work/socket" \
    >out 2>err
  [[ $? == 2 ]] || fail "jobs cancel of what is not a name: $(cat err)"
  grep -q '"field":"name"' out || fail "no field in $(cat out)"
  grep -q '"reason":"INVALID_FIELD"' out || fail "no reason in $(cat out)"
}

test_a_server_that_is_not_there() {
  "$kTool" jobs list --server "unix:$work/none" >out 2>err
  [[ $? == 3 ]] || fail "no server: $(cat err)"
  "$kTool" jobs list >out 2>err
  [[ $? == 2 ]] || fail "jobs without server: $(cat err)"
  "$kTool" verify x --server "unix:$work/socket" --direct on >out 2>err
  [[ $? == 2 ]] || fail "--direct with a server: $(cat err)"
}

start_server
for test in test_verbs_that_read test_verbs_that_write test_mappings \
  test_refusals test_damage test_jobs test_a_server_that_is_not_there; do
  echo "== $test"
  "$test"
done
kill -TERM "$server_pid"
wait "$server_pid" || fail "the server ended with $?"
server_pid=
[[ $num_failed == 0 ]]
