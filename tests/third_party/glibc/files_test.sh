#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each file needs no library and no symbol that RHEL 8 does not have:
# files_test.sh [--sharing-libstdcxx] FILE...
set -euo pipefail

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

libraries='lib(c|m|pthread|dl|rt)\.so\.[0-9]+|ld-linux-(x86-64|aarch64)\.so\.[0-9]'
limits=(GLIBC_2.28)
if [[ $1 == --sharing-libstdcxx ]]; then
  shift
  libraries+='|lib(torch(_cpu|_cuda)?|c10(_cuda)?|stdc\+\+|gcc_s)\.so(\.[0-9]+)?'
  limits+=(GLIBCXX_3.4.25 CXXABI_1.3.11 GCC_7.0.0)
fi

# needed FILE: the libraries that it needs.
needed() { readelf --dynamic --wide "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }

# versions FILE: the versions of symbols that it needs.
versions() {
  readelf --dyn-syms --wide "$1" |
    awk '$7 == "UND" && sub(/.*@/, "", $8) { print $8 }' | sort -u
}

# is_old VERSION
is_old() {
  local limit
  for limit in "${limits[@]}"; do
    if [[ ${limit%_*} == "${1%_*}" ]] &&
      printf '%s\n' "$1" "$limit" | sort --version-sort --check=silent; then
      return
    fi
  done
  return 1
}

for file; do
  [[ $(versions "$file") =~ GLIBC_2\.(2\.5|17) ]] || fail "no versions in $file"
  for version in $(versions "$file"); do
    is_old "$version" || fail "$file needs $version"
  done
  for library in $(needed "$file"); do
    [[ $library =~ ^($libraries)$ ]] || fail "$file needs $library"
  done
  # An older glibc has functions in them.
  for library in libpthread.so.0 libdl.so.2 librt.so.1; do
    needed "$file" | grep -qxF "$library" || fail "$file does not need $library"
  done
done
