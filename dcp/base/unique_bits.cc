// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/unique_bits.h"

#include <unistd.h>

#include <atomic>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"

namespace dcp {

uint64_t UniqueBits() {
  // Not std::random_device: linked statically, it requires a newer C library
  // than many machines have that programs are copied to, and it throws.
  uint64_t bits;
  if (getentropy(&bits, sizeof(bits)) == 0) return bits;
  static std::atomic<uint64_t> counter{0};
  return Xxh3Digest(AsBytes(absl::StrCat(
      absl::GetCurrentTimeNanos(), " ",
      std::chrono::steady_clock::now().time_since_epoch().count(), " ",
      getpid(), " ", gethostid(), " ", counter.fetch_add(1))));
}

std::string NewUuid() {
  const uint64_t first = UniqueBits();
  const uint64_t second = UniqueBits();
  return absl::StrFormat(
      "%08x-%04x-4%03x-%04x-%012x", first >> 32, first >> 16 & 0xffff,
      first & 0xfff, (second >> 48 & 0x3fff) | 0x8000, second & 0xffffffffffff);
}

}  // namespace dcp
