#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A program that is linked with the older glibc runs with it and with the installed
# one, and does the same. One that is linked ordinarily does not run with it.
set -euo pipefail
# shellcheck source=older_glibc.sh
. tests/third_party/glibc/older_glibc.sh
make_older external/glibc/*.so.*
cd tests/third_party/glibc

expected=$(./ordinary)
[[ $(wc -l <<<"$expected") == 7 && $expected == "constructions 2"* &&
  $expected == *"caught from a thread, local 5"* ]] || fail "$expected"
for program in portable portable_sharing_libstdcxx; do
  found=$("./$program")
  [[ $found == "$expected" ]] || fail "$program: $found"
  found=$("${with_older[@]}" "./$program") || fail "$program: $?"
  [[ $found == "$expected" ]] || fail "$program with the older glibc: $found"
done
found=$("${with_older[@]}" ./ordinary 2>&1) && fail "the older glibc runs all: $found"
[[ $found == *"version \`GLIBC_2.34' not found"* ]] || fail "$found"

# The unwinder does without a function that the installed libgcc_s.so.1 needs.
LC_ALL=C sed -i 's/_dl_find_object/_dl_find_objecx/g' \
  "$older/ld-linux-x86-64.so.2"
found=$("${with_older[@]}" ./portable) || fail "exceptions: $?"
[[ $found == "$expected" ]] || fail "exceptions: $found"

# files_test.sh finds what such a program needs.
cd - >/dev/null
found=$(tests/third_party/glibc/files_test.sh --sharing-libstdcxx \
  tests/third_party/glibc/ordinary 2>&1) && fail "it needs nothing: $found"
[[ $found =~ "ordinary needs "[A-Z]+_ ]] || fail "$found"
