#include "dcp/checkpoint/write/save_id.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"

namespace dcp {
namespace {

// For a sandbox in which the kernel gives no random bytes. An id is not a
// secret; no other process, thread or moment may have the same.
std::array<uint32_t, 6> UnlikelyWords() {
  static std::atomic<uint64_t> counter{0};
  const std::array<int64_t, 5> moment = {
      absl::GetCurrentTimeNanos(),
      std::chrono::steady_clock::now().time_since_epoch().count(), getpid(),
      static_cast<int64_t>(gethostid()),
      static_cast<int64_t>(counter.fetch_add(1))};
  std::array<uint32_t, 6> words;
  for (size_t i = 0; i < words.size(); i += 2) {
    const std::string text = absl::StrCat(i, " ", absl::StrJoin(moment, " "));
    const uint64_t digest = Digest64Of(AsBytes(text));
    words[i] = static_cast<uint32_t>(digest);
    words[i + 1] = static_cast<uint32_t>(digest >> 32);
  }
  return words;
}

}  // namespace

std::string NewSaveId() {
  // Not std::random_device: linked statically, it requires a newer C library
  // than many of the machines have that the tool is copied to.
  std::array<uint32_t, 6> words;
  if (getentropy(words.data(), sizeof(words)) != 0) words = UnlikelyWords();
  return absl::StrFormat("%08x-%04x-4%03x-%04x-%04x%08x", words[0],
                         words[1] & 0xffff, words[2] & 0xfff,
                         (words[3] & 0x3fff) | 0x8000, words[4] & 0xffff,
                         words[5]);
}

}  // namespace dcp
