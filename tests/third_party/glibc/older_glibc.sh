# SPDX-License-Identifier: Apache-2.0
# Runs programs with an older glibc, libstdc++ and libgcc, for tests that source
# this file. They are the installed ones in which everything that came after RHEL 8
# has names for which nobody asks: the loader refuses a program that needs it.

readonly older=$TEST_TMPDIR/older

# make_older LIBRARY...: copies of the installed libraries. `with_older` begins a
# command with them.
make_older() {
  local library loader
  mkdir -p "$older"
  for library; do
    LC_ALL=C sed -E '
      s/GLIBC_2\.(29|3[0-9])/GLIBX_2.\1/g
      s/GLIBCXX_3\.4\.(2[6-9]|3[0-9])/GLIBXXX_3.4.\1/g
      s/CXXABI_1\.3\.(1[2-9])/CXXABX_1.3.\1/g
      s/GCC_(1[0-9]\.)/GXX_\1/g
      s/pthread_cond_clockwait/pthread_cond_clockwaix/g' \
      "$(readlink -f "$library")" >"$older/${library##*/}"
  done
  loader=$(echo "$older"/ld-linux-*)
  chmod +x "$loader"
  with_older=("$loader" --library-path "$older")
}

fail() {
  echo "FAILED: $*" >&2
  exit 1
}
