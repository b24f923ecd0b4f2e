// SPDX-License-Identifier: Apache-2.0

#include "client/tensor_layout.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/base/checksum.h"
#include "dcp/base/status.h"

namespace dcp::client {
namespace {

// How many parts fit in a request of 64 MiB, the largest that a server may
// accept, if each has a name of one byte. A server that sends more would fill
// this machine's memory.
constexpr size_t kMaxParts = size_t{16} << 20;

}  // namespace

absl::Status TensorLayout::Add(const Header& header) {
  if (complete_)
    return absl::DataLossError("there is a header after the last one");
  if (started_ &&
      (header.etag() != etag_ || header.num_bytes() != num_bytes_)) {
    return absl::DataLossError("the headers are of different checkpoints");
  }
  if (!started_) begins_.push_back(0);
  started_ = true;
  etag_ = header.etag();
  num_bytes_ = header.num_bytes();
  for (const TensorPart& part : header.parts()) {
    const std::optional<uint64_t> end =
        CheckedAdd(begins_.back(), part.num_bytes());
    if (!end.has_value() || *end > num_bytes_ || parts_.size() >= kMaxParts) {
      return absl::DataLossError(
          absl::StrCat("the header's parts exceed its ", num_bytes_, " bytes"));
    }
    parts_.push_back(part);
    begins_.push_back(*end);
  }
  if (header.more()) return absl::OkStatus();
  if (begins_.back() != num_bytes_) {
    return absl::DataLossError(absl::StrCat("the header's parts have ",
                                            begins_.back(), " of its ",
                                            num_bytes_, " bytes"));
  }
  complete_ = true;
  return absl::OkStatus();
}

absl::Status TensorLayout::Allocate(AllocatePart allocate) {
  DCP_CHECK(complete_ && destinations_.empty());
  destinations_.reserve(parts_.size());
  for (size_t i = 0; i < parts_.size(); ++i) {
    DCP_ASSIGN_OR_RETURN(const std::span<uint8_t> destination,
                         allocate(i, parts_[i]));
    if (destination.size() != parts_[i].num_bytes()) {
      return absl::InvalidArgumentError(absl::StrCat(
          parts_[i].name(), ": the memory has ", destination.size(),
          " bytes, the part ", parts_[i].num_bytes()));
    }
    destinations_.push_back(destination);
  }
  return absl::OkStatus();
}

absl::Status TensorRange::Place(const ReceivedChunk& chunk,
                                const TensorLayout& layout) {
  if (chunk.part >= layout.parts_.size()) {
    return absl::DataLossError(
        absl::StrCat("part ", chunk.part, " of ", layout.parts_.size()));
  }
  const TensorPart& part = layout.parts_[chunk.part];
  const auto malformed = [&](const auto&... what) {
    return absl::DataLossError(
        absl::StrCat(part.name(), ", at byte ", chunk.offset, ": ", what...));
  };
  // The offset is checked first: begin + offset must not overflow.
  if (chunk.offset > part.num_bytes() ||
      chunk.num_bytes > part.num_bytes() - chunk.offset) {
    return malformed("a message of ", chunk.num_bytes,
                     " bytes exceeds the part's ", part.num_bytes());
  }
  if (layout.begins_[chunk.part] + chunk.offset != position_) {
    return malformed("a message is out of order");
  }
  uint32_t crc32c = 0;
  for (const ByteSpan piece : chunk.pieces) {
    crc32c = ExtendCrc32c(crc32c, piece);
  }
  if (crc32c != chunk.crc32c) {
    return malformed("the checksum of ", chunk.num_bytes, " bytes is wrong");
  }
  // The pieces are in the cache now.
  uint8_t* to = layout.destinations_[chunk.part].data() + chunk.offset;
  for (const ByteSpan piece : chunk.pieces) {
    const uint64_t num_bytes =
        std::min<uint64_t>(piece.size(), end_ - position_);
    if (num_bytes > 0) std::memcpy(to, piece.data(), num_bytes);
    to += num_bytes;
    position_ += num_bytes;
  }
  return absl::OkStatus();
}

}  // namespace dcp::client
