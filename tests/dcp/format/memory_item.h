// SPDX-License-Identifier: Apache-2.0
// An item in memory that parsers read through ReadAt. Every read returns new
// memory and frees the previous read's, so that AddressSanitizer finds a parser
// that keeps a span for too long. For tests only.
#ifndef TESTS_DCP_FORMAT_MEMORY_ITEM_H_
#define TESTS_DCP_FORMAT_MEMORY_ITEM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"

namespace dcp::testing {

class MemoryItem {
 public:
  explicit MemoryItem(absl::string_view bytes) : bytes_(bytes) {}

  uint64_t length() const { return bytes_.size(); }

  // The largest single read so far.
  uint64_t largest_read() const { return largest_read_; }

  absl::StatusOr<ByteSpan> operator()(uint64_t offset, uint64_t length) const {
    if (offset > bytes_.size() || length > bytes_.size() - offset) {
      return absl::InternalError(absl::StrCat("parser reads ", length,
                                              " bytes at ", offset, " of ",
                                              bytes_.size()));
    }
    if (length > largest_read_) largest_read_ = length;
    const ByteSpan source = AsBytes(bytes_).subspan(offset, length);
    last_ = std::vector<uint8_t>(source.begin(), source.end());
    return ByteSpan(last_);
  }

 private:
  absl::string_view bytes_;
  // A FunctionRef calls the target as const.
  mutable std::vector<uint8_t> last_;
  mutable uint64_t largest_read_ = 0;
};

}  // namespace dcp::testing

#endif  // TESTS_DCP_FORMAT_MEMORY_ITEM_H_
