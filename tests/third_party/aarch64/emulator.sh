# SPDX-License-Identifier: Apache-2.0
# Runs programs for aarch64 on another machine, for tests that source this file.

# Begins a command, with the libraries of Debian's packages.
readonly emulated=(qemu-aarch64-static -L "$PWD/external/debian_aarch64")

fail() {
  echo "FAILED: $*" >&2
  exit 1
}
