// SPDX-License-Identifier: Apache-2.0
// Box: a hyper-rectangle of elements in a tensor, and the little geometry that
// resharding needs. Pure; allocates nothing up to 4 dimensions; any thread. A
// Box has no bytes, strides or files.
#ifndef DCP_TENSOR_BOX_H_
#define DCP_TENSOR_BOX_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace dcp {

// One number per tensor dimension: a shape, offsets or strides, in elements.
using Dims = absl::InlinedVector<int64_t, 4>;

// `offsets` and `sizes` have equal length; a 0-d tensor's box has none and
// holds one element. Sizes are not negative.
struct Box {
  Dims offsets;
  Dims sizes;

  friend bool operator==(const Box&, const Box&) = default;
};

// The box that covers a whole tensor.
Box WholeBox(absl::Span<const int64_t> shape);

// The number of elements; 1 without dimensions. nullopt when a size is negative
// or the product of max(size, 1) does not fit into 64 bits (signed): an empty
// shape has strides too, and PyTorch also refuses it.
std::optional<int64_t> CheckedVolume(absl::Span<const int64_t> sizes);

// The same for sizes that are known to be valid.
int64_t Volume(absl::Span<const int64_t> sizes);

// The common part; nullopt when it is empty. Two 0-d boxes always overlap. Both
// boxes have the same number of dimensions.
std::optional<Box> Intersect(const Box& a, const Box& b);

// True when `inner` lies inside `outer`. Offsets and sizes may be hostile:
// there is no overflow.
bool Contains(const Box& outer, const Box& inner);

// A size or an offset that is known not to be negative.
inline uint64_t ToUnsigned(int64_t value) {
  return static_cast<uint64_t>(value);
}

// The index of element `number`, in row-major order, for a tensor with `shape`.
Dims IndexOfElement(uint64_t number, absl::Span<const int64_t> shape);

// Row-major strides, in elements, computed with max(size, 1) as PyTorch does.
Dims RowMajorStrides(absl::Span<const int64_t> sizes);

// "[0:2, 3:5]" (half-open ranges), and "[2, 3]" for a shape.
std::string ToString(const Box& box);
std::string ShapeToString(absl::Span<const int64_t> shape);

}  // namespace dcp

#endif  // DCP_TENSOR_BOX_H_
