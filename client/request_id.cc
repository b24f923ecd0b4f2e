#include "client/request_id.h"

#include <array>
#include <cstdint>
#include <random>

#include "absl/strings/str_format.h"

namespace dcp::client {

std::string NewRequestId() {
  // Uses the kernel's randomness, four bytes a call: ids of all clients must
  // differ.
  std::random_device random;
  std::array<uint32_t, 4> words;
  for (uint32_t& word : words) word = random();
  const uint32_t version = (words[1] & 0x0fff) | 0x4000;
  const uint32_t variant = (words[2] >> 16 & 0x3fff) | 0x8000;
  return absl::StrFormat("%08x-%04x-%04x-%04x-%04x%08x", words[0],
                         words[1] >> 16, version, variant, words[2] & 0xffff,
                         words[3]);
}

}  // namespace dcp::client
