// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/files/file_reader.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

// Parsers usually ask next for bytes that follow closely: a local header, a
// count.
constexpr uint64_t kReadAheadBytes = 4096;

}  // namespace

bool IsAboutBytes(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

absl::StatusOr<ByteSpan> FileReader::Read(uint64_t offset, uint64_t length) {
  if (offset > length_ || length > length_ - offset) {
    return absl::DataLossError(absl::StrCat(
        "bytes [", offset, ", +", length, ") reach past the end at ", length_));
  }
  const bool buffered = offset >= buffer_offset_ &&
                        offset - buffer_offset_ + length <= buffer_.size();
  if (!buffered) {
    const uint64_t read =
        std::min(std::max(length, kReadAheadBytes), length_ - offset);
    buffer_.resize(read);
    buffer_offset_ = offset;
    if (const absl::Status status =
            ReadInBlocks(fs_, file_, start_ + offset, buffer_, stop_);
        !status.ok()) {
      buffer_.clear();  // does not hold the file's content
      return status;
    }
  }
  return ByteSpan(buffer_).subspan(offset - buffer_offset_, length);
}

}  // namespace dcp
