#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the real dcp-convert over golden checkpoints: every cell in README.md's
# table of formats, exit codes, remaining files.

set -uo pipefail

readonly kTool=$PWD/tools/dcp_convert/dcp-convert
readonly kGolden=$PWD/tests/golden
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/convert.XXXXXX")
readonly work
trap 'rm -rf "$work"' EXIT
# Bazel gives links to files; inside a checkpoint links are refused.
cp -rL "$kGolden/torch-2.11" "$work/golden"
chmod -R u+w "$work/golden"
cd "$work" || exit 1
num_failed=0

fail() {
  echo "FAILED: $*"
  num_failed=$((num_failed + 1))
}

# expect CODE ARGUMENTS...: runs the tool; leaves the output in out and err.
expect() {
  local want=$1 got
  shift
  "$kTool" "$@" >out 2>err
  got=$?
  [[ $got == "$want" ]] && return
  fail "dcp-convert $*: exit code $got, want $want"
  cat out err
}

# said FILE TEXT: after expect, FILE (out or err) contains TEXT.
said() {
  grep -qF -- "$2" "$1" || { fail "no '$2' in $1:"; cat "$1"; }
}

# quiet FILE: FILE is empty.
quiet() {
  [[ ! -s $1 ]] || { fail "$1 is not empty:"; cat "$1"; }
}

# absent PATH...: nothing is there.
absent() {
  local path
  for path in "$@"; do [[ ! -e $path ]] || fail "$path exists"; done
}

# round_trip SOURCE NAME [EXCLUDED]: SOURCE to every format, each equal to
# SOURCE; EXCLUDED are names that safetensors has no dtype for.
round_trip() {
  local source=$1 name=$2 target
  local -a excluded=()
  [[ -z ${3:-} ]] || excluded=(--exclude "$3")
  for target in "$name.dcp --to dcp" "$name.pt" "$name.mesh --to dcp --mesh 2"; do
    # shellcheck disable=SC2086
    set -- ${target/--mesh 2/--mesh replicate=2,shard=2}
    expect 0 convert "$source" "$@"
    expect 0 diff "$source" "$1" --max-memory 16MiB
    said out "equal: "
    expect 0 verify "$1" --max-memory 16MiB
  done
  for target in "$name.safetensors" "$name.hf --to safetensors" \
    "$name.shards --to safetensors --max-shard-size 1KB"; do
    # shellcheck disable=SC2086
    set -- $target
    expect 0 convert "$source" "$@" --drop-non-tensors "${excluded[@]}"
    expect 0 diff "$source" "$1" --tensors-only "${excluded[@]}" \
      --max-memory 16MiB
    said out "equal: "
    expect 0 verify "$1" --max-memory 16MiB
  done
}

test_every_format_becomes_every_format() {
  round_trip golden/sharded dcp
  round_trip golden/train train
  round_trip golden/safetensors_items items
  round_trip golden/hugging_face hf
  round_trip golden/hugging_face/sharded hf_sharded
  round_trip golden/archive.pt zip '*.complex[13]*'
  round_trip golden/legacy.pt legacy '*.complex[13]*'
  # Checkpoints that we wrote: a single safetensors file, and its sharded form.
  round_trip train.safetensors single
  round_trip train.shards shards
}

test_objects_survive_a_circle() {
  expect 0 consolidate golden/train circle.pt
  expect 0 reshard circle.pt circle.dcp --mesh replicate=2,shard=3
  expect 0 consolidate circle.dcp circle2.pt
  expect 0 diff golden/train circle2.pt
}

test_resharding_for_tensor_parallelism() {
  local file
  echo 'up: colwise' >plan.yaml
  expect 0 reshard golden/train tp --mesh dp=2,tp=2 --tp-plan plan.yaml
  expect 0 diff golden/train tp
  expect 0 inspect tp
  said out "2 x StridedShard(0, 2), 2 x Shard(0)"
  expect 0 reshard golden/train named --mesh dp=2,tp=2 \
    --place '*.up.*=tp:S(0),dp:S(0)'
  for file in __0_0 __1_0 __2_0 __3_0; do
    cmp "tp/$file.distcp" "named/$file.distcp" || fail "$file differs"
  done
  expect 2 reshard golden/train no --mesh dp=2,tp=2
  said err "the axis tp"
  said err "--tp-plan"
  printf 'up: colwse\ndown: 3\n' >plan.yaml
  expect 2 reshard golden/train no --mesh dp=2,tp=2 --tp-plan plan.yaml
  said err "plan.yaml:1: up is 'colwse'"
  said err "dcp-convert: plan.yaml:2: down is neither"
  expect 2 reshard golden/train no --mesh dp=2,tp=2 --tp-plan none.yaml
  said err "none.yaml"
  absent no
}

test_the_verbs_of_pytorch() {
  expect 0 dcp_to_torch golden/train torch_out
  expect 0 inspect torch_out
  said out "format     pt"
  expect 0 torch_to_dcp torch_out dcp_out
  [[ -f dcp_out/.metadata ]] || fail "dcp_out has no .metadata"
  expect 0 diff golden/train dcp_out
}

test_selecting_and_renaming() {
  expect 0 convert golden/train bare.safetensors --include 'model.*' \
    --rename 's/^model\.//'
  expect 0 inspect bare.safetensors
  said out "up.weight"
  expect 0 diff golden/train bare.safetensors --include 'model.*' \
    --rename 's/^model\.//'
  expect 1 diff golden/train bare.safetensors --tensors-only
  said out "only in A"
  expect 0 convert golden/train half.pt --include 'model.*' --cast bf16
  expect 1 diff golden/train half.pt --include 'model.*'
  said out "bfloat16"
  expect 0 diff golden/train half.pt --include 'model.*' --rename 's/a/a/' \
    --cast bf16
}

test_inspect() {
  expect 0 inspect golden/train
  said out "model.up.weight"
  said out "train.step"
  quiet err
  expect 0 inspect golden/train --tensors '*.weight' --chunks
  said out "__0_0.distcp"
  expect 0 inspect golden/train --json
  said out '{"verb":"inspect","version":1,"path":"golden/train","format":"dcp"'
}

test_plan_writes_nothing() {
  expect 0 convert golden/train planned.pt --plan
  said out "would read "
  expect 0 reshard golden/train planned --mesh shard=4 --plan --json
  said out '"done":false'
  absent planned.pt planned .planned*
}

test_verify_finds_a_flipped_bit() {
  expect 0 consolidate golden/train flipped.pt
  # A byte of payload: where the first chunk lies.
  local offset
  offset=$(("$("$kTool" inspect flipped.pt --chunks --json |
    grep -o '"offset":[0-9]*' | head -1 | cut -d: -f2)"))
  printf '\xff' | dd of=flipped.pt bs=1 seek=$((offset + 3)) conv=notrunc \
    status=none
  expect 1 verify flipped.pt
  said out "CRC-32"
  expect 1 diff golden/train flipped.pt
  said out "values"
  said out "first at ["
}

test_diff_within_a_tolerance() {
  expect 0 consolidate golden/train rough.pt --include 'model.*' --cast bf16
  expect 0 convert rough.pt close.pt --cast float32
  expect 1 diff golden/train close.pt --include 'model.*'
  said out "max rel"
  expect 0 diff golden/train close.pt --include 'model.*' --rtol 0.01
  said out "equal within atol 0 and rtol 0.01"
}

test_exit_codes() {
  expect 2 convrt a b
  said err "did you mean 'convert'"
  quiet out
  expect 2 convert golden/train out.pt --include nothing.like.this
  absent out.pt
  expect 3 inspect not/there
  said err "not/there"
  echo "this is no checkpoint" >junk.pt
  expect 3 convert junk.pt out.pt
  expect 3 inspect junk.pt --json
  said out '"exit_code":3'
  absent out.pt
  expect 4 convert golden/train not/there/out.pt
  expect 5 convert golden/train train.pt
  said err "train.pt"
  expect 0 convert golden/train train.pt --overwrite
  expect 5 convert golden/train out.safetensors
  said err "--drop-non-tensors"
  expect 5 convert golden/archive.pt out.safetensors --drop-non-tensors
  said err "zoo.complex"
  absent out.safetensors not
  expect 0 --help
  expect 0 convert --help
  expect 0 --version
}

test_standard_output_that_takes_nothing() {
  "$kTool" inspect golden/train >/dev/full 2>err
  local got=$?
  [[ $got == 4 ]] || fail "exit code $got with a full standard output, want 4"
  said err "standard output"
}

# big NAME: a safetensors file with one tensor of zeros, 300 MB without disk
# blocks: long enough at work to be interrupted.
big() {
  local bytes=300000000 header
  header='{"x":{"dtype":"U8","shape":['$bytes'],"data_offsets":[0,'$bytes']}}'
  printf '\x'"$(printf %02x ${#header})"'\0\0\0\0\0\0\0%s' "$header" >"$1"
  truncate -s $((8 + ${#header} + bytes)) "$1"
}

# A checkpoint to standard output: into a file by the shell, through a pipe, and
# into a pipe that nobody reads any more.
test_standard_output_as_destination() {
  local -a codes
  "$kTool" convert golden/hugging_face - >stream 2>err || fail "-: $(cat err)"
  said err "safetensors to safetensors"
  expect 0 diff golden/hugging_face stream --tensors-only
  "$kTool" consolidate golden/sharded - --to pt 2>err | cat >stream.pt
  expect 0 diff golden/sharded stream.pt
  mkdir streamed
  big streamed/big.safetensors
  "$kTool" convert streamed/big.safetensors - 2>err | head -c 100 >out
  codes=("${PIPESTATUS[@]}")
  [[ ${codes[0]} == 4 ]] || fail "exit code ${codes[0]} without a reader, want 4"
  said err "has gone away"
  [[ $(ls -A streamed) == big.safetensors ]] || fail "left: $(ls -A streamed)"
  rm -r streamed
  expect 2 convert golden/hugging_face - --json
  quiet out
  expect 2 reshard golden/sharded - --mesh shard=2
  expect 2 convert golden/sharded - --to dcp
  expect 2 convert - x.pt
  expect 0 convert golden/hugging_face - --plan
  said out "would read"
  absent ./-
}

test_interrupt_leaves_no_output() {
  local signal pid got line
  mkdir interrupted
  big interrupted/big.safetensors
  mkfifo progress
  set -m # otherwise background processes of the shell ignore SIGINT
  for signal in INT TERM; do
    "$kTool" convert interrupted/big.safetensors interrupted/out.pt \
      --progress json >out 2>progress &
    pid=$!
    exec 3<progress
    # The first line comes before the first byte moves.
    read -r line <&3
    kill -"$signal" "$pid"
    cat <&3 >err
    exec 3<&-
    wait "$pid"
    got=$?
    [[ $line == '{"event":"progress"'* ]] || fail "it began with: $line"
    [[ $got == 130 ]] || fail "exit code $got after SIG$signal, want 130"
    [[ $(ls -A interrupted) == big.safetensors ]] ||
      fail "SIG$signal left: $(ls -A interrupted)"
    said err "interrupted"
    quiet out
  done
  set +m
}

# Not for a binary with a sanitizer, because the shadow memory needs all of the
# address space.
test_too_little_memory_is_refused() {
  local got source
  mkdir memory
  big memory/big.safetensors
  # A header of 99 MB.
  printf '\xc0\x9e\xe6\x05\0\0\0\0{' >memory/header.safetensors
  truncate -s 100000000 memory/header.safetensors
  for source in big header; do
    (
      ulimit -v 90000
      exec "$kTool" convert "memory/$source.safetensors" memory/out.pt \
        >out 2>err
    )
    got=$?
    [[ $got == 5 ]] || { fail "exit code $got for $source, want 5"; cat err; }
    said err "memory"
    said err "--max-memory"
    absent memory/out.pt
  done
  (
    ulimit -v 90000
    exec "$kTool" convert memory/big.safetensors memory/out.pt \
      --max-memory 16MiB >out 2>err
  ) || { fail "16 MiB do not fit in 90 MB"; cat err; }
  rm -r memory
}

# completed WORDS...: prints bash's suggestions for the last one.
completed() (
  # shellcheck disable=SC1090
  source <("$kTool" completion bash)
  COMP_WORDS=(dcp-convert "$@")
  COMP_CWORD=$#
  _dcp_convert
  echo "${COMPREPLY[*]}"
)

test_completion_in_bash() {
  [[ $(completed in) == inspect ]] || fail "in: $(completed in)"
  [[ $(completed inspect --ch) == --chunks ]] ||
    fail "inspect --ch: $(completed inspect --ch)"
  [[ $(completed verify --ch) == "" ]] ||
    fail "verify --ch: $(completed verify --ch)"
  [[ $(completed convert --direct "") == "auto on off" ]] ||
    fail "--direct: $(completed convert --direct "")"
  [[ $(completed inspect golden/tr) == golden/train* ]] ||
    fail "a path: $(completed inspect golden/tr)"
  [[ $(completed maps "") == "list show check test" ]] ||
    fail "maps: $(completed maps "")"
  [[ $(completed maps show ll) == llama ]] ||
    fail "maps show ll: $(completed maps show ll)"
  [[ $(completed jobs c) == cancel ]] || fail "jobs c: $(completed jobs c)"
  expect 0 completion fish
  said out "gpt2"
  expect 2 completion csh
  expect 0 man
  said out ".TH DCP"
}

test_workers_share_a_verify() {
  expect 0 convert golden/sharded checked --to dcp --mesh shard=4
  local -a shared=(verify checked --piece-size 500B --records found)
  expect 3 workers --records found
  said out "no worker has begun"
  expect 0 "${shared[@]}" --share 0/3
  said out "the rest is left to other workers"
  expect 0 workers --records found
  said out " pieces done"
  expect 4 workers --records found --wait --wait-for 1
  said err "found is not complete after 1 s"
  expect 5 verify checked --records found --share 1/3
  said err "another plan"
  expect 5 workers --records found --discard
  said err "end all workers"
  expect 0 "${shared[@]}" --share 2/3
  expect 0 "${shared[@]}" --share 1/3 --json
  said out '"complete":true'
  expect 0 "${shared[@]}" --share 0/1
  said out "no problem found"
  said out "verified 0 of"
  expect 0 workers --records found --discard
  said out "discarded"
  rmdir found || fail "something is left in found"

  # Damage in two files, which two workers find.
  local file
  for file in checked/__0_0.*distcp checked/__3_0.*distcp; do
    printf '\x55' | dd of="$file" bs=1 conv=notrunc status=none \
      seek=$(($(stat -c %s "$file") / 2))
  done
  expect 1 verify checked
  sed '/^checked /d' out >alone
  expect 0 "${shared[@]}" --share 0/2
  expect 0 workers --records found --json
  said out '"complete":false'
  expect 1 "${shared[@]}" --share 1/2
  said out "the report is that of all workers"
  diff <(sed '/^checked /d; /^share /d' out) alone || fail "not the same report"
  expect 1 workers --records found --wait
  said out "problem"
  expect 1 workers --records found --json
  said out '"ok":false'
  expect 0 workers --records found --discard
}

# denying ERRNO CALL... -- COMMAND...: runs it where the kernel answers these
# system calls with that errno.
denying() {
  python3 - "$@" <<'PYTHON'
import ctypes
import os
import struct
import sys

CALLS = {"clone": 56, "getrandom": 318, "io_uring_enter": 426, "clone3": 435}
end = sys.argv.index("--")
errno = int(sys.argv[1])
rules = [(0x20, 0, 0, 0)]  # the number of the call
for name in sys.argv[2:end]:
    rules += [(0x15, 0, 1, CALLS[name]), (0x06, 0, 0, 0x50000 | errno)]
rules.append((0x06, 0, 0, 0x7FFF0000))
code = b"".join(struct.pack("HBBI", *rule) for rule in rules)
kept = ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxQ", len(rules), ctypes.addressof(kept))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # no new privileges
assert libc.prctl(22, 2, program, 0, 0) == 0  # a filter
os.execv(sys.argv[end + 1], sys.argv[end + 1:])
PYTHON
}

test_what_the_system_denies_is_an_error() {
  local got
  mkdir denied
  # Other ways to the same end.
  denying 1 getrandom io_uring_enter -- \
    "$kTool" convert golden/train denied/a.pt >out 2>err
  got=$?
  [[ $got == 0 ]] || { fail "without getrandom: $got"; cat err; }
  denying 11 clone clone3 -- "$kTool" inspect golden/train >out 2>err
  got=$?
  [[ $got == 5 ]] || fail "without threads: $got"
  said err "the system starts no more threads"
  (
    ulimit -f 1
    exec "$kTool" convert golden/train denied/b.pt >out 2>err
  )
  got=$?
  [[ $got == 5 ]] || fail "without room for a file: $got"
  said err "ulimit -f"
  [[ $(ls -A denied) == a.pt ]] || fail "left: $(ls -A denied)"
}

# If a file can no longer be opened, the checkpoint is not reported as damaged.
test_too_few_descriptors_are_no_damage() {
  local source limit got seen
  expect 0 convert golden/train few.dcp --to dcp --mesh shard=24
  expect 0 convert golden/train few.hf --to safetensors --max-shard-size 64 \
    --drop-non-tensors
  for source in few.dcp few.hf; do
    seen=
    for limit in {6..60..3}; do
      (
        ulimit -n "$limit"
        exec "$kTool" verify "$source" >out 2>err
      )
      got=$?
      seen+=$got
      case $got in
        0) said out "no problem" ;;
        3) said err "raise the limit with ulimit -n" ;;
        *) fail "verify $source with $limit descriptors: $got"; cat out err ;;
      esac
    done
    [[ $seen == 3*0 ]] || fail "verify $source with more and more: $seen"
  done
}

test_long_names() {
  local name
  mkdir long
  name=$(printf 'n%.0s' {1..245}).safetensors
  name=${name: -250}
  expect 0 convert golden/train "long/${name}" --drop-non-tensors
  expect 0 convert golden/train "long/${name}" --drop-non-tensors --overwrite
  [[ $(ls -A long) == "$name" ]] || fail "left: $(ls -A long)"
}

test_habits() {
  expect 0 convert golden/train habit.pt --cast BF16
  expect 0 convert golden/train habit.pt --cast torch.bfloat16 --overwrite
  expect 3 workers no_such_directory
  said out "nothing is there"
  expect 6 verify golden/hugging_face
  said out "no content was checked"
  expect 1 verify golden/hugging_face --strict
  expect 0 verify golden/train --strict
  expect 0 inspect golden/hugging_face
  [[ $(grep -c '^  format ' out) == 1 ]] || fail "format twice: $(cat out)"
}

for name in $(compgen -A function test_); do
  echo "== $name"
  $name
done
[[ $num_failed == 0 ]] || { echo "$num_failed failed"; exit 1; }
