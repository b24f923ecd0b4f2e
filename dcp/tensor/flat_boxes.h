// SPDX-License-Identifier: Apache-2.0
// A range of a tensor's elements, counted in row-major order, as boxes. Sharded
// optimizers (DeepSpeed's ZeRO, FSDP1's flat parameters) cut tensors this way,
// without regard to rows. Pure; any thread.
#ifndef DCP_TENSOR_FLAT_BOXES_H_
#define DCP_TENSOR_FLAT_BOXES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "dcp/tensor/box.h"

namespace dcp {

struct FlatBox {
  Box box;
  // The elements from the range's beginning to the box's first one. The box's
  // elements follow one another in the range, in row-major order.
  int64_t offset = 0;

  friend bool operator==(const FlatBox&, const FlatBox&) = default;
};

// The disjoint boxes that cover the elements [begin, end) of a tensor with
// `shape`, in order: at most 2 * dimensions - 1 boxes, and one for a tensor
// without dimensions; none if the range is empty. The shape's volume is valid
// (CheckedVolume), and 0 <= begin <= end <= volume.
std::vector<FlatBox> FlatBoxes(absl::Span<const int64_t> shape, int64_t begin,
                               int64_t end);

}  // namespace dcp

#endif  // DCP_TENSOR_FLAT_BOXES_H_
