#include "dcp/checkpoint/save_id.h"

#include <cstdint>
#include <random>

#include "absl/strings/str_format.h"

namespace dcp {

std::string NewSaveId() {
  std::random_device device;
  const auto word = [&device] { return static_cast<uint32_t>(device()); };
  return absl::StrFormat("%08x-%04x-4%03x-%04x-%04x%08x", word(),
                         word() & 0xffff, word() & 0xfff,
                         (word() & 0x3fff) | 0x8000, word() & 0xffff, word());
}

}  // namespace dcp
