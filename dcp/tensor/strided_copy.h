// SPDX-License-Identifier: Apache-2.0
// Copies elements between memories with different strides: rows that move
// unchanged, transposition, interleaving, repetition. Pure; any thread; any
// alignment.
#ifndef DCP_TENSOR_STRIDED_COPY_H_
#define DCP_TENSOR_STRIDED_COPY_H_

#include <cstdint>

#include "absl/types/span.h"
#include "dcp/tensor/element.h"

namespace dcp {

// `count` steps, which advance the source and the destination by this many
// bytes each. A source stride of 0 repeats an element.
struct CopyLoop {
  uint64_t count = 1;
  uint64_t src_stride = 0;
  uint64_t dst_stride = 0;

  friend bool operator==(const CopyLoop&, const CopyLoop&) = default;
};

// Where a copy begins on either side.
struct CopyEnds {
  const uint8_t* src;
  uint8_t* dst;
};

// Copies `unit_bytes` adjacent bytes for each combination of steps in `loops`.
// The destination units overlap neither each other nor the source.
void CopyStrided(CopyEnds ends, uint64_t unit_bytes,
                 absl::Span<const CopyLoop> loops);

// The same for units of `unit` elements, which are transformed on the way; see
// TransformElements.
void TransformStrided(const ElementTransform& transform, CopyEnds ends,
                      uint64_t unit, absl::Span<const CopyLoop> loops,
                      uint64_t* num_beyond = nullptr);

}  // namespace dcp

#endif  // DCP_TENSOR_STRIDED_COPY_H_
