# SPDX-License-Identifier: Apache-2.0
# Functions for the tests of an installed prefix, which source this file.

readonly prefix=$TEST_TMPDIR/prefix
readonly build=$TEST_TMPDIR/build

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# unpack ARCHIVE...: into `prefix`, which is not the folder where it was made.
unpack() {
  mkdir -p "$prefix"
  local archive
  for archive in "$@"; do
    tar -C "$prefix" --no-same-owner -xf "tools/install/$archive"
  done
}

# same WHAT A B: the texts must be equal.
same() {
  [[ $2 == "$3" ]] || fail "$1:"$'\n'"$2"$'\n'"instead of"$'\n'"$3"
}

# says WHAT TEXT COMMAND...: the command must fail and print the text; CMake
# breaks its lines anywhere.
says() {
  local what=$1 text=$2 output
  shift 2
  output=$("$@" 2>&1) && fail "$what: it did not fail"
  output=$(tr -s ' \n' ' ' <<<"$output")
  [[ $output == *"$text"* ]] || fail "$what: '$text' is not in: $output"
}

# configure PREFIX_PATH OPTIONS...
configure() {
  local path=$1
  shift
  cmake -S examples/cmake -B "$build" "-DCMAKE_PREFIX_PATH=$path" "$@" \
    >"$TEST_TMPDIR/cmake.log" 2>&1 || fail "$(cat "$TEST_TMPDIR/cmake.log")"
}

# compile TARGETS...
compile() {
  local targets=("${@/#/--target=}")
  cmake --build "$build" --parallel 2 "${targets[@]}" \
    >"$TEST_TMPDIR/make.log" 2>&1 || fail "$(cat "$TEST_TMPDIR/make.log")"
}

# start_server COMMAND...: a dcp-server; sets `server` to the process, which
# ends with the test, and `address` to the address.
start_server() {
  local line log
  exec {log}< <(exec "$@" 2>&1)
  server=$!
  trap 'kill "$server"; wait "$server" || true' EXIT
  while read -r -t 60 line <&"$log"; do
    if [[ $line =~ event=start\ address=([^ ]+) ]]; then
      address=${BASH_REMATCH[1]}
      return
    fi
    echo "$line" >&2
  done
  fail "the daemon does not start"
}
