// SPDX-License-Identifier: Apache-2.0
// CopyRun: a regular piece of a copy from a stored chunk into a row-major
// output window, down to bytes. Any overlap between two layouts is a list of
// runs. Pure; any thread.
#ifndef DCP_PLAN_STRIDED_COPY_RUN_H_
#define DCP_PLAN_STRIDED_COPY_RUN_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "dcp/base/bytes.h"
#include "dcp/tensor/box.h"

namespace dcp {

// `count` times `unit` elements. A unit's elements are adjacent on both sides;
// from one unit to the next the source advances by src_stride bytes and the
// destination by dst_stride bytes. Source strides are not negative, but may be
// 0 (one element is copied many times); each stride is a multiple of the
// element size on that side.
struct CopyRun {
  uint32_t file = 0;  // the source file's index
  uint32_t tag = 0;   // the caller's: which destination, which conversion
  uint64_t src = 0;   // byte offset in the file
  uint64_t dst = 0;   // byte offset in the destination
  uint64_t unit = 0;  // elements
  uint64_t count = 1;
  uint64_t src_stride = 0;
  uint64_t dst_stride = 0;
  uint32_t src_element_bytes = 1;
  uint32_t dst_element_bytes = 1;

  friend bool operator==(const CopyRun&, const CopyRun&) = default;
};

// Where a chunk's elements lie in a file.
struct ChunkView {
  Box box;       // in the tensor
  Dims strides;  // elements, not negative, one per dimension
  uint32_t file = 0;
  uint64_t offset = 0;  // the element at box.offsets, bytes in the file
  uint32_t element_bytes = 1;
};

// A piece of output: elements [first, first + num_elements) in the box's
// row-major image, written to byte `dst` in destination `tag`.
struct Window {
  Box box;  // in the tensor
  uint64_t first = 0;
  uint64_t num_elements = 0;
  uint64_t dst = 0;
  uint32_t element_bytes = 1;
  uint32_t tag = 0;
};

// Appends the runs that copy the part of `overlap` (inside both boxes) from
// `chunk` that falls into the window. Runs are as long and as few as the
// layouts allow: dimensions that are contiguous on both sides are merged.
void AppendCopyRuns(const Window& window, const ChunkView& chunk,
                    const Box& overlap, std::vector<CopyRun>& runs);

// The bounding box, over all dimensions, for elements [first, first + n) in the
// box's row-major image: to find the chunks that a window needs.
Box WindowBounds(const Box& box, uint64_t first, uint64_t num_elements);

// The byte count from the first byte that `run` reads to the last, inclusive.
uint64_t SourceExtent(const CopyRun& run);

// True when an element in `run` begins inside [window_offset, window_offset +
// window_length) in the file, so that ApplyRun has elements to copy.
bool HasElementIn(const CopyRun& run, uint64_t window_offset,
                  uint64_t window_length);

// Calls `copy(src, dst_offset, num_elements)` for the elements in `run` that
// begin inside [window_offset, window_offset + window_length) in the file, at
// most once per unit, in order; `data` holds the file from window_offset on,
// and up to kReadMarginBytes more than window_length where the file has them.
void ApplyRun(const CopyRun& run, uint64_t window_offset,
              uint64_t window_length, ByteSpan data,
              absl::FunctionRef<void(const uint8_t* src, uint64_t dst,
                                     uint64_t num_elements)>
                  copy);

}  // namespace dcp

#endif  // DCP_PLAN_STRIDED_COPY_RUN_H_
