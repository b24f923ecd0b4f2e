// SPDX-License-Identifier: Apache-2.0
// arc4random for the binary itself. The static libstdc++ of Debian 12 refers to
// it (for std::random_device, which its string code pulls in), and glibc has it
// only since 2.36; with this the binary runs from 2.35 on.
// Tested by tests/tools/dcp_convert/dcp_convert_test.sh.

#include <unistd.h>

#include <cstdint>
#include <cstdlib>

extern "C" uint32_t arc4random() noexcept {
  uint32_t word = 0;
  // As in glibc: the process cannot continue without random bytes.
  if (getentropy(&word, sizeof(word)) != 0) abort();
  return word;
}
