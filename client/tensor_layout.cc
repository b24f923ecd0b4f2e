#include "client/tensor_layout.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/base/checksum.h"
#include "dcp/base/status.h"

namespace dcp::client {
namespace {

// The number of parts with a name of one byte in a request of 64 MiB, the
// largest that a server may accept. A server that sends more would fill this
// machine's memory.
constexpr size_t kMaxParts = size_t{16} << 20;

// The size of a page. With larger pages the kernel refuses some calls.
constexpr uintptr_t kPageBytes = 4096;

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

// Maps the whole pages of memory that is about to be written. New memory is
// otherwise mapped page by page while it is written, and these faults take most
// of the time of a copy into it; one call for all pages takes half of that. It
// does not change the bytes. A kernel that cannot do it refuses, which does not
// matter.
void MapPages(std::span<uint8_t> memory) {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  const uintptr_t first = AlignUp(begin, kPageBytes);
  const uintptr_t end = AlignDown(begin + memory.size(), kPageBytes);
  if (first >= end) return;
  madvise(reinterpret_cast<void*>(first), end - first, MADV_POPULATE_WRITE);
}

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
  const std::span<uint8_t> destination =
      layout.destinations_[chunk.part].subspan(
          chunk.offset, std::min(chunk.num_bytes, end_ - position_));
  MapPages(destination);
  // The pieces are in the cache now.
  uint8_t* to = destination.data();
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
