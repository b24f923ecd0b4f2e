// SPDX-License-Identifier: Apache-2.0
// NestRun: for pieces that rearrange, as CopyRun is for boxes: nested loops, in
// bytes, from a stored chunk into a row-major output window. A transposed
// matrix is one run, where it would be a CopyRun for each row. Pure; any
// thread.
#ifndef DCP_PLAN_STRIDED_NEST_RUN_H_
#define DCP_PLAN_STRIDED_NEST_RUN_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "dcp/base/bytes.h"
#include "dcp/plan/strided/copy_run.h"
#include "dcp/plan/strided/strided_piece.h"
#include "dcp/tensor/strided_copy.h"

namespace dcp {

// For each combination of steps in `loops`, `unit` elements that are adjacent
// on both sides. Each stride is a multiple of the element size on that side.
// The loops come by falling stride in the destination, and no loop continues
// another one; each takes at least two steps.
struct NestRun {
  uint32_t file = 0;  // the source file's index
  uint32_t tag = 0;   // the caller's: which destination, which conversion
  uint64_t src = 0;   // byte offset in the file
  uint64_t dst = 0;   // byte offset in the destination
  uint64_t unit = 1;  // elements
  absl::InlinedVector<CopyLoop, 3> loops;  // at most kMaxStridedLoops
  uint32_t src_element_bytes = 1;
  uint32_t dst_element_bytes = 1;

  friend bool operator==(const NestRun&, const NestRun&) = default;
};

// Appends the runs that copy the part of `piece` that comes from `chunk` and
// falls into the window. `window.box` and `chunk.box` are in the tensors on the
// piece's two sides. A chunk without dimensions serves a piece of zeros: the
// one element is repeated.
//
// There are at most as many as the product of 2k - 1 over the dimensions of
// both tensors, where k loops walk along the dimension, times 2K + 1 for K
// loops in total.
void AppendNestRuns(const Window& window, const ChunkView& chunk,
                    const StridedPiece& piece, std::vector<NestRun>& runs);

// The number of elements that `run` copies.
uint64_t NumElements(const NestRun& run);

// Calls visit(begin, end) with file stretches that together hold all bytes that
// `run` reads, in no particular order. Gaps of at most `gap_bytes` between
// elements are included.
void ForEachExtent(const NestRun& run, uint64_t gap_bytes,
                   absl::FunctionRef<void(uint64_t begin, uint64_t end)> visit);

// How many extents that are.
uint64_t NumExtents(const NestRun& run, uint64_t gap_bytes);

// True when an element in `run` begins inside [window_offset, window_offset +
// window_length) in the file, so that ApplyRun has elements to copy.
bool HasElementIn(const NestRun& run, uint64_t window_offset,
                  uint64_t window_length);

// Calls visit(part) with runs that together are the elements in `run` with a
// destination in [begin, end): at most 2K + 1 for K loops.
void CutByDestination(const NestRun& run, uint64_t begin, uint64_t end,
                      absl::FunctionRef<void(const NestRun& part)> visit);

// Calls copy(part, src) with runs that together are the elements in `run` that
// begin inside [window_offset, window_offset + window_length) in the file:
// CopyStrided or TransformStrided takes `src`, where the part's source begins,
// and the part's dst, unit and loops. There are at most 2K + 1 for K loops, if
// the source elements do not overlap. `data` holds the file from window_offset
// on, and up to kReadMarginBytes more than window_length where the file has
// them.
void ApplyRun(
    const NestRun& run, uint64_t window_offset, uint64_t window_length,
    ByteSpan data,
    absl::FunctionRef<void(const NestRun& part, const uint8_t* src)> copy);

// Stretches in a file, such as a few matrix columns in each row, and their
// place in memory.
struct FileRows {
  uint64_t offset = 0;  // the first stretch in the file
  uint64_t length = 0;  // for each stretch
  uint64_t stride = 0;  // from one to the next in the file; at least `length`
  uint64_t count = 0;
  // From one to the next in memory: at least `length` + kReadMarginBytes, which
  // are there as far as the file goes.
  uint64_t pitch = 0;
};

// The same for the elements that begin inside `rows`; no element may begin
// between rows. There are at most 2K + 1 parts, and each extends over many
// rows, unless an inner loop leaves the row: then there are as many for each
// row.
void ApplyRun(
    const NestRun& run, const FileRows& rows, ByteSpan data,
    absl::FunctionRef<void(const NestRun& part, const uint8_t* src)> copy);

}  // namespace dcp

#endif  // DCP_PLAN_STRIDED_NEST_RUN_H_
