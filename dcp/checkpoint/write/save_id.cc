#include "dcp/checkpoint/write/save_id.h"

#include <unistd.h>

#include <array>
#include <cstdint>

#include "absl/strings/str_format.h"
#include "dcp/base/check.h"

namespace dcp {

std::string NewSaveId() {
  // Not std::random_device: linked statically, it requires a newer C library
  // than many of the machines have that the tool is copied to.
  std::array<uint32_t, 6> words;
  DCP_CHECK(getentropy(words.data(), sizeof(words)) == 0,
            "the kernel did not provide random bytes");
  return absl::StrFormat("%08x-%04x-4%03x-%04x-%04x%08x", words[0],
                         words[1] & 0xffff, words[2] & 0xfff,
                         (words[3] & 0x3fff) | 0x8000, words[4] & 0xffff,
                         words[5]);
}

}  // namespace dcp
