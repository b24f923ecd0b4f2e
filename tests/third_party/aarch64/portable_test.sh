#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A program for aarch64 needs no later glibc than 2.28, runs with an older and with the
# installed one, and does the same as on this machine. Its segments begin at
# multiples of 64 KiB, the largest page.
set -euo pipefail
# shellcheck source=emulator.sh
. tests/third_party/aarch64/emulator.sh
# shellcheck source=../glibc/older_glibc.sh
. tests/third_party/glibc/older_glibc.sh
make_older external/debian_aarch64/usr/lib/ld-linux-*.so.* \
  external/debian_aarch64/lib/aarch64-linux-gnu/lib{c,m,stdc++,gcc_s}.so.[0-9]

readonly program=tests/third_party/aarch64/portable/portable
tests/third_party/glibc/files_test.sh "$program"
alignments=$(readelf --program-headers --wide "$program" |
  awk '$1 == "LOAD" { print $NF }' | sort -u)
[[ $alignments == 0x10000 ]] || fail "segments begin at multiples of $alignments"

expected=$(tests/third_party/glibc/ordinary)
[[ $expected == "constructions 2"* ]] || fail "$expected"
found=$("${emulated[@]}" "$program") || fail "$?: $found"
[[ $found == "$expected" ]] || fail "$found"
found=$("${emulated[@]}" "${with_older[@]}" "$program") || fail "$?: $found"
[[ $found == "$expected" ]] || fail "with the older glibc: $found"
