// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/formats/item_part.h"

#include <cstddef>
#include <utility>

#include "dcp/base/check.h"

namespace dcp {
namespace {

// The strides for a chunk with `sizes`. The elements are a box with sizes
// `box_sizes` in a tensor with `strides`.
Dims ChunkStrides(const Dims& sizes, const Dims& box_sizes,
                  const Dims& strides) {
  Dims result = RowMajorStrides(sizes);
  if (Volume(sizes) <= 1) return result;
  Dims long_sizes;
  Dims long_strides;
  for (size_t d = 0; d < box_sizes.size(); ++d) {
    if (box_sizes[d] == 1) continue;
    long_sizes.push_back(box_sizes[d]);
    long_strides.push_back(strides[d]);
  }
  if (long_sizes.size() == 1) {
    for (int64_t& stride : result) stride *= long_strides[0];
    return result;
  }
  size_t next = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    DCP_CHECK(next < long_sizes.size() && long_sizes[next] == sizes[d],
              "a part of another shape");
    result[d] = long_strides[next++];
  }
  return result;
}

}  // namespace

void NarrowToPart(const ItemPart& part, const Dims& sizes,
                  uint64_t element_bytes, ChunkLocation& location) {
  DCP_CHECK(Volume(part.box.sizes) == Volume(sizes), "a part of another size");
  const Dims strides =
      location.strides.empty() ? RowMajorStrides(part.shape) : location.strides;
  int64_t first = 0;
  for (size_t d = 0; d < strides.size(); ++d) {
    first += part.box.offsets[d] * strides[d];
  }
  location.payload_offset += static_cast<uint64_t>(first) * element_bytes;
  Dims narrowed = ChunkStrides(sizes, part.box.sizes, strides);
  location.strides =
      narrowed == RowMajorStrides(sizes) ? Dims() : std::move(narrowed);
}

}  // namespace dcp
