// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/file_layout.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "dcp/base/bytes.h"
#include "dcp/base/check.h"

namespace dcp {

size_t FileLayout::Append(uint64_t literal_length, uint64_t payload_length,
                          uint32_t payload, uint32_t needs_from) {
  const std::optional<uint64_t> length =
      CheckedAdd(literal_length, payload_length);
  const std::optional<uint64_t> size =
      length.has_value() ? CheckedAdd(size_, *length) : std::nullopt;
  DCP_CHECK(size.has_value(), name_, " exceeds 64 bits");
  parts_.push_back({.offset = size_,
                    .literal_length = literal_length,
                    .payload_length = payload_length,
                    .payload = payload,
                    .needs_from = needs_from});
  size_ = *size;
  return parts_.size() - 1;
}

void FileLayout::ShiftPayloads(uint32_t by) {
  for (LayoutPart& part : parts_) part.payload += by;
}

void FileLayout::ForEachPiece(
    uint64_t offset, uint64_t length,
    absl::FunctionRef<void(size_t part, bool literal, uint64_t begin,
                           uint64_t end)>
        visit) const {
  DCP_CHECK(offset <= size_ && length <= size_ - offset, "[", offset, ", +",
            length, ") of ", size_, " bytes");
  const uint64_t range_end = offset + length;
  // Visits the part of [base, base + piece_length) that lies in the range.
  const auto visit_common = [&](size_t part, bool literal, uint64_t base,
                                uint64_t piece_length) {
    const uint64_t begin = std::max(base, offset);
    const uint64_t end = std::min(base + piece_length, range_end);
    if (begin < end) visit(part, literal, begin - base, end - base);
  };
  const auto first = std::partition_point(
      parts_.begin(), parts_.end(),
      [&](const LayoutPart& part) { return part.end() <= offset; });
  for (auto part = first; part != parts_.end() && part->offset < range_end;
       ++part) {
    const auto index = static_cast<size_t>(part - parts_.begin());
    visit_common(index, true, part->offset, part->literal_length);
    visit_common(index, false, part->payload_offset(), part->payload_length);
  }
}

}  // namespace dcp
