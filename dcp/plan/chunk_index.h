// SPDX-License-Identifier: Apache-2.0
// Finds a tensor's chunks that overlap a requested box without comparing all
// pairs, and checks that chunks cover a tensor exactly. Pure; thread-safe once
// built.
#ifndef DCP_PLAN_CHUNK_INDEX_H_
#define DCP_PLAN_CHUNK_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "dcp/plan/interval_list.h"
#include "dcp/tensor/box.h"

namespace dcp {

class ChunkIndex {
 public:
  // `chunks` must outlive the index; all have the same number of dimensions.
  explicit ChunkIndex(absl::Span<const Box> chunks);

  // Calls `visit` for every chunk that overlaps `wanted`, sorted by the chunks'
  // offsets along the two dimensions with the most distinct offsets. O(log n)
  // for each match when the chunks are cut along one or two dimensions.
  // Building the index allocates no memory when the chunks are slices in order,
  // as FSDP cuts them.
  void ForEachOverlap(
      const Box& wanted,
      absl::FunctionRef<void(size_t chunk, const Box& overlap)> visit) const;

 private:
  // Chunks that begin at the same place along outer_dim_ are a band; within a
  // band they are sorted along inner_dim_. So in a grid of chunks, the rows are
  // found first, then the columns.
  absl::Span<const Box> chunks_;
  // If the chunks are slices along outer_dim_ in order, they are searched
  // directly, and the fields below stay empty.
  bool is_sliced_ = false;
  size_t outer_dim_ = 0;             // with the most distinct offsets
  size_t inner_dim_ = 0;             // with the next most
  std::vector<uint32_t> order_;      // chunks that are not empty, sorted
  std::vector<size_t> band_begins_;  // in order_; then order_.size()
  IntervalList bands_;               // along outer_dim_
  IntervalList inner_;               // order_ along inner_dim_
};

// OK when the chunks lie inside `shape`, are disjoint and leave no gap. Empty
// chunks are ignored; a tensor without elements needs no chunks. Otherwise
// DataLoss, which names the first two chunks that overlap, the chunk that is
// out of bounds, or the number of uncovered elements. O(n log n) for the usual
// grids.
absl::Status CheckCoverage(absl::Span<const int64_t> shape,
                           absl::Span<const Box> chunks);

}  // namespace dcp

#endif  // DCP_PLAN_CHUNK_INDEX_H_
