// SPDX-License-Identifier: Apache-2.0
// NestRun: what CopyRun is to a copy of boxes, for pieces that rearrange: a
// nest of loops, in bytes, from a stored chunk into a window of row-major
// output. A transposed matrix is one run, where it would be a CopyRun for each
// row. Pure; any thread.
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

// For each combination of steps of `loops`, `unit` elements that are adjacent
// on both sides. Each stride is a multiple of the element's size on its side.
// The loops come by falling stride in the destination, none of which another
// one continues; each takes at least two steps.
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
// falls into the window. `window.box` and `chunk.box` are in the tensors of the
// two sides of the piece. A chunk without dimensions serves a piece of zeros:
// its one element is repeated.
//
// There are at most as many as the product of 2k - 1 over the dimensions of
// both tensors, where k loops of the piece walk along the dimension, times
// 2K + 1 for its K loops.
void AppendNestRuns(const Window& window, const ChunkView& chunk,
                    const StridedPiece& piece, std::vector<NestRun>& runs);

// The number of elements that `run` copies.
uint64_t NumElements(const NestRun& run);

// Calls visit(begin, end) with stretches of the file that together hold all
// that `run` reads, in no particular order. Gaps between its elements of at
// most `gap_bytes` are included.
void ForEachExtent(const NestRun& run, uint64_t gap_bytes,
                   absl::FunctionRef<void(uint64_t begin, uint64_t end)> visit);

// How many extents that are.
uint64_t NumExtents(const NestRun& run, uint64_t gap_bytes);

// True when an element of `run` begins inside [window_offset, window_offset +
// window_length) of the file, so that ApplyRun has something to copy.
bool HasElementIn(const NestRun& run, uint64_t window_offset,
                  uint64_t window_length);

// Calls visit(part) with runs that together are the elements of `run` whose
// destination is in [begin, end): at most 2K + 1 for K loops.
void CutByDestination(const NestRun& run, uint64_t begin, uint64_t end,
                      absl::FunctionRef<void(const NestRun& part)> visit);

// Calls copy(part, src) with runs that together are the elements of `run` that
// begin inside [window_offset, window_offset + window_length) of the file:
// CopyStrided or TransformStrided takes `src`, where the source of `part`
// begins, its dst, unit and loops. There are at most 2K + 1 for K loops, if the
// elements of the source do not overlap. `data` holds the file from
// window_offset on, and up to kReadMarginBytes more than window_length where
// the file has them.
void ApplyRun(
    const NestRun& run, uint64_t window_offset, uint64_t window_length,
    ByteSpan data,
    absl::FunctionRef<void(const NestRun& part, const uint8_t* src)> copy);

// Stretches of a file, like those that a few columns of a matrix have in its
// rows, and where they are in memory.
struct FileRows {
  uint64_t offset = 0;  // of the first in the file
  uint64_t length = 0;  // of each
  uint64_t stride = 0;  // from one to the next in the file; at least `length`
  uint64_t count = 0;
  // From one to the next in memory: at least `length` + kReadMarginBytes, which
  // are there as far as the file goes.
  uint64_t pitch = 0;
};

// The same for the elements that begin inside one of `rows`; none of the run's
// may begin between them. Each of the at most 2K + 1 parts extends over many
// rows, unless an inner loop of the run leaves its row: then there are as many
// for each row.
void ApplyRun(
    const NestRun& run, const FileRows& rows, ByteSpan data,
    absl::FunctionRef<void(const NestRun& part, const uint8_t* src)> copy);

}  // namespace dcp

#endif  // DCP_PLAN_STRIDED_NEST_RUN_H_
