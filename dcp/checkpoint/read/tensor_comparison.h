// SPDX-License-Identifier: Apache-2.0
// TensorComparison: how far the elements of tensors are apart, pair by pair.
// Reads both sides at the same time, whatever their chunks, in memory that does
// not depend on their sizes. Blocking; used by one thread.
#ifndef DCP_CHECKPOINT_READ_TENSOR_COMPARISON_H_
#define DCP_CHECKPOINT_READ_TENSOR_COMPARISON_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/checkpoint/read/read_run.h"
#include "dcp/checkpoint/read/window_planner.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"
#include "dcp/tensor/dtype.h"
#include "dcp/tensor/element.h"

namespace dcp {

class TensorComparison {
 public:
  // The files with the tensors on either side, which may be the same; they
  // outlive this.
  TensorComparison(SourceFiles& a, SourceFiles& b,
                   const std::optional<Tolerance>& tolerance)
      : a_(a), b_(b), tolerance_(tolerance) {}

  // Adds a pair with one shape; elements are compared as `dtype`. Both are
  // located, and outlive this.
  void Add(const TensorEntry& a, const TensorEntry& b, DType dtype);

  // The bytes to compare, on one side.
  uint64_t num_bytes() const { return num_bytes_; }

  // Compares all pairs. `options` give memory, stop and stats.
  absl::Status Run(FileSystem& fs, const ReadRunOptions& options);

  // The result for the pair with this number, in the order of Add calls.
  const ElementDifference& difference(size_t pair) const {
    return pairs_[pair].difference;
  }

 private:
  struct Pair {
    const TensorEntry* a;
    const TensorEntry* b;
    DType dtype;
    uint64_t num_elements;
    ElementDifference difference;
  };
  // A stretch of one pair. A's elements are in the first half of a block, B's
  // at the same place in the second half.
  struct Stretch {
    size_t pair;
    uint32_t block;
    uint64_t position;
    uint64_t first;
    uint64_t num_elements;
  };
  static constexpr uint64_t kHalf = kBlockBytes / 2;

  absl::StatusOr<bool> NextBatch(Batch& batch);
  void PlanBlock(uint32_t block, uint8_t* data,
                 std::vector<Stretch>& stretches);

  SourceFiles& a_;
  SourceFiles& b_;
  const std::optional<Tolerance> tolerance_;
  std::vector<Pair> pairs_;
  uint64_t num_bytes_ = 0;
  WindowPlanner planner_;
  // The next position to plan.
  size_t next_pair_ = 0;
  uint64_t next_element_ = 0;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_READ_TENSOR_COMPARISON_H_
