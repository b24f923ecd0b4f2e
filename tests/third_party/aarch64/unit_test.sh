#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs unit tests for aarch64: unit_test.sh PROGRAM... The emulator cannot deny calls
# of the system, so tests that do are left out, and shown.
set -euo pipefail
# shellcheck source=emulator.sh
. tests/third_party/aarch64/emulator.sh

unset XML_OUTPUT_FILE TEST_SHARD_INDEX TEST_TOTAL_SHARDS
readonly denying=UniqueBits.DifferWithoutTheKernelsRandomBytes:UniqueBits.MakeARandomUuid:Thread.AFailedStartIsAnError
failures=()
for program; do
  mkdir "$TEST_TMPDIR/${program##*/}"
  TEST_TMPDIR=$TEST_TMPDIR/${program##*/} "${emulated[@]}" "$program" \
    --gtest_brief=1 --gtest_filter="-$denying" || failures+=("$program")
done
[[ ${#failures[@]} == 0 ]] || fail "${failures[*]}"
