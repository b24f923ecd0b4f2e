#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the program on Tessera::fsdp of examples/cmake against an installed
# prefix and the LibTorch of PyTorch's wheel, and trains on two processes.
set -euo pipefail
# shellcheck source=prefix.sh
. tests/tools/install/prefix.sh
[[ -x ${TESSERA_PYTHON-} ]] || fail "TESSERA_PYTHON names no Python with PyTorch"
unpack tessera-base.tar tessera-fsdp.tar

torch=$("$TESSERA_PYTHON" -c 'import torch; print(torch.utils.cmake_prefix_path)')
configure "$prefix;$torch"
compile list_checkpoint train
tests/third_party/glibc/files_test.sh --sharing-libstdcxx "$build/train"

export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 OMP_NUM_THREADS=1
exec {held}< <(/usr/bin/python3 -B tests/testing/held_port.py)
read -r MASTER_PORT <&"$held"
export MASTER_PORT
readonly saved=$TEST_TMPDIR/saved
RANK=1 timeout 120 "$build/train" "$saved" >"$TEST_TMPDIR/rank1" &
RANK=0 timeout 120 "$build/train" "$saved" >"$TEST_TMPDIR/rank0" ||
  fail "rank 0: $?"
wait $! || fail "rank 1: $?"
awk '/^step/ { loss[$2] = $4 }
     END { exit !(30 in loss && loss[30] < loss[10] / 2) }' \
  "$TEST_TMPDIR/rank0" || fail "it does not learn: $(cat "$TEST_TMPDIR/rank0")"
[[ -e $saved/__0_0.distcp && -e $saved/__1_0.distcp ]] ||
  fail "both ranks write: $(ls -A "$saved")"

# PyTorch and list_checkpoint read the same bytes.
same "list_checkpoint and PyTorch" \
  "$("$build/list_checkpoint" "$saved" | sort)" \
  "$("$TESSERA_PYTHON" -B tests/tools/install/tensor_crcs.py "$saved" | sort)"

# A project that has found another LibTorch version gets an error that says so.
mkdir -p "$TEST_TMPDIR/torch/include/torch/headeronly" "$TEST_TMPDIR/torch/lib"
sed 's/"[0-9.]*"/"2.10.0"/' \
  "$torch/../../include/torch/headeronly/version.h" \
  >"$TEST_TMPDIR/torch/include/torch/headeronly/version.h"
touch "$TEST_TMPDIR"/torch/lib/{libtorch_cpu,libc10}.so
mkdir "$TEST_TMPDIR/project"
cat >"$TEST_TMPDIR/project/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.24)
project(user LANGUAGES CXX)
find_package(Tessera REQUIRED COMPONENTS fsdp)
CMAKE
says "another LibTorch" "is of LibTorch '2.10.0'" \
  cmake -S "$TEST_TMPDIR/project" -B "$TEST_TMPDIR/other" \
  "-DCMAKE_PREFIX_PATH=$prefix;$TEST_TMPDIR/torch"

# A program for GPUs links and starts where there is none. The client's headers
# find gRPC's protobuf, although LibTorch has headers from another.
cat >"$TEST_TMPDIR/project/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.24)
project(user LANGUAGES CXX)
find_package(Tessera REQUIRED COMPONENTS nccl)
add_executable(user user.cc)
target_link_libraries(user PRIVATE Tessera::nccl)
CMAKE
cat >"$TEST_TMPDIR/project/user.cc" <<'CODE'
#include "tessera/client.h"
int main() {}
CODE
{
  cmake -S "$TEST_TMPDIR/project" -B "$TEST_TMPDIR/gpu" \
    "-DCMAKE_PREFIX_PATH=$prefix;$torch" && cmake --build "$TEST_TMPDIR/gpu"
} >"$TEST_TMPDIR/gpu.log" 2>&1 || fail "$(cat "$TEST_TMPDIR/gpu.log")"
"$TEST_TMPDIR/gpu/user" || fail "with nccl: $?"
