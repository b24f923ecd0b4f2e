#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds examples/cmake against an installed prefix without fsdp, with CMake and
# with pkg-config, and compares what the programs print.
set -euo pipefail
# shellcheck source=prefix.sh
. tests/tools/install/prefix.sh
# shellcheck source=../../third_party/glibc/older_glibc.sh
. tests/third_party/glibc/older_glibc.sh
unpack tessera-base.tar

# The installed files name no build folder.
if grep -rlE "bazel-|execroot" "$prefix/lib/cmake" "$prefix/lib/pkgconfig" \
  "$prefix/include"; then
  fail "these files name a folder of the build"
fi
# The licences for all libraries in the archives and programs are installed.
readonly docs=$prefix/share/doc/tessera
same "our licence" "$(<"$docs/LICENSE")" "$(<LICENSE)"
same "all licences" "$(<"$docs/licenses.txt")" \
  "$("$prefix/bin/dcp-convert" --licenses | sed '1{/^$/d}')"
# Headers that only sources include are not installed.
[[ ! -e $prefix/include/tessera/dcp/io/uring_queue.h &&
  ! -e $prefix/include/tessera/dcp/checkpoint/output/dcp_output.h ]] ||
  fail "private headers are installed"

configure "$prefix"
compile describe_checkpoint list_checkpoint list_remote

# The programs agree about a PyTorch checkpoint and dcp-convert's result for it.
mkdir "$TEST_TMPDIR/root"
cp -rL tests/golden/torch-2.11/train "$TEST_TMPDIR/root/"
readonly golden=$TEST_TMPDIR/root/train
readonly list=$build/list_checkpoint
listed=$("$list" "$golden") || fail "list_checkpoint: exit code $?"
[[ $(wc -l <<<"$listed") -gt 4 ]] || fail "few tensors: $listed"
"$prefix/bin/dcp-convert" convert "$golden" "$TEST_TMPDIR/one.pt" >/dev/null
same "the same in one file" \
  "$("$list" "$TEST_TMPDIR/one.pt" | sort)" "$(sort <<<"$listed")"
says "no checkpoint" "NOT_FOUND" "$list" "$TEST_TMPDIR/nothing"

# They run on older systems.
make_older external/glibc/*.so.*
same "with an older glibc" "$("${with_older[@]}" "$list" "$golden")" "$listed"
tests/third_party/glibc/files_test.sh --sharing-libstdcxx \
  "$list" "$build/list_remote" "$prefix"/lib/libtessera.so "$prefix"/bin/*

# The program in C agrees, too.
same "in C" \
  "$("$build/describe_checkpoint" "$golden" | grep -o '"name":"[^"]*","dtype"' |
    cut -d'"' -f4 | sort)" \
  "$(cut -d' ' -f1 <<<"$listed" | sort)"
same "in C with an older glibc" \
  "$("${with_older[@]}" "$build/describe_checkpoint" "$golden")" \
  "$("$build/describe_checkpoint" "$golden")"
says "no checkpoint for C" "/nothing: " \
  "$build/describe_checkpoint" "$TEST_TMPDIR/nothing"

# The client, with the installed daemon.
start_server "$prefix/bin/dcp-server" --listen=127.0.0.1:0 \
  --root="$TEST_TMPDIR/root" --state-dir="$TEST_TMPDIR/state"
same "by the daemon" \
  "$("$build/list_remote" "$address" "$golden")" \
  "$(sed -E 's/ [a-z0-9]+ (\[.*\]) [0-9a-f]+$/ \1/' <<<"$listed")"

# The same program without CMake.
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
read -ra flags <<<"$(pkg-config --cflags tessera-dcp)"
read -ra libraries <<<"$(pkg-config --libs tessera-dcp)"
g++ "${flags[@]}" examples/cmake/list_checkpoint.cc "${libraries[@]}" \
  -o "$TEST_TMPDIR/list"
same "with pkg-config" "$("$TEST_TMPDIR/list" "$golden")" "$listed"
read -ra flags <<<"$(pkg-config --cflags --libs tessera)"
gcc -Wall -Wextra -Werror -pedantic -std=c99 \
  examples/cmake/describe_checkpoint.c "${flags[@]}" -o "$TEST_TMPDIR/describe"
same "C with pkg-config" \
  "$(LD_LIBRARY_PATH=$prefix/lib "$TEST_TMPDIR/describe" "$golden")" \
  "$("$build/describe_checkpoint" "$golden")"
read -ra flags <<<"$(pkg-config --cflags --libs tessera tessera-portable)"
cp "$prefix/lib/libtessera.so" "$older/"
gcc -std=c99 examples/cmake/describe_checkpoint.c "${flags[@]}" \
  -o "$TEST_TMPDIR/older_describe"
same "C with pkg-config and an older glibc" \
  "$("${with_older[@]}" "$TEST_TMPDIR/older_describe" "$golden")" "$("$build/describe_checkpoint" "$golden")"
same "the version" "$(pkg-config --modversion tessera-client)" \
  "$("$prefix/bin/dcp-convert" --version | grep -o '[0-9.]*[0-9]')"

# Missing parts are named.
mkdir "$TEST_TMPDIR/project"
cat >"$TEST_TMPDIR/project/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.24)
project(user LANGUAGES CXX)
find_package(Tessera ${VERSION} REQUIRED COMPONENTS ${COMPONENTS})
CMAKE
# project VERSION COMPONENTS OPTIONS...
project() {
  local version=$1 components=$2
  shift 2
  rm -rf "$TEST_TMPDIR/other"
  cmake -S "$TEST_TMPDIR/project" -B "$TEST_TMPDIR/other" \
    "-DCMAKE_PREFIX_PATH=$prefix" -DVERSION="$version" \
    "-DCOMPONENTS=$components" "$@"
}
project 0.1 "dcp;client" >/dev/null || fail "find_package"
says "another version" "version: 0.1" project 0.2 dcp
says "an unknown component" "there are c, dcp, client, fsdp, nccl and portable" project 0.1 fs
says "fsdp is not installed" "--without-fsdp" project 0.1 fsdp
says "a library is missing" "liburing: install the Debian package liburing-dev" \
  project 0.1 dcp -DTessera_uring_LIBRARY=OFF
