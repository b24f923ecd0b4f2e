// Finds which of a tensor's chunks meet a wanted box without comparing all
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
#include "dcp/tensor/box.h"

namespace dcp {

class ChunkIndex {
 public:
  // `chunks` must outlive the index; all have the same number of dimensions.
  explicit ChunkIndex(absl::Span<const Box> chunks);

  // Calls `visit` for every chunk with which `wanted` has a part in common,
  // in order of the chunks' offsets. O(log n + matches) for chunks that are
  // cut along one dimension.
  void ForEachOverlap(
      const Box& wanted,
      absl::FunctionRef<void(size_t chunk, const Box& overlap)> visit) const;

 private:
  absl::Span<const Box> chunks_;
  size_t dim_ = 0;                // the dimension the sweep is sorted along
  std::vector<uint32_t> order_;   // non-empty chunks by offset in dim_
  std::vector<int64_t> max_end_;  // prefix maximum of their ends in dim_
};

// OK when the chunks lie inside `shape`, are disjoint and leave no gap;
// chunks of zero volume are ignored, a tensor without elements needs none.
// DataLoss names the first two chunks that overlap, the chunk that is out of
// bounds, or how many elements are not covered. O(n log n) for the usual
// grids.
absl::Status CheckCoverage(absl::Span<const int64_t> shape,
                           absl::Span<const Box> chunks);

}  // namespace dcp

#endif  // DCP_PLAN_CHUNK_INDEX_H_
