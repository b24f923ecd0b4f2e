// SPDX-License-Identifier: Apache-2.0
// Megatron-core stores some tensors in another shape: blocks of a tensor as
// rows with one dimension, and a model's layers as one tensor. These functions
// restore the original shape by computing where each chunk's elements are; no
// element moves. Pure; any thread. Source:
// megatron/core/dist_checkpointing/strategies/resharding.py
// (TensorReformulationMetadata), megatron/core/transformer/
// transformer_block.py (sharded_state_dict), 0.15.
#ifndef DCP_CHECKPOINT_DIALECTS_MEGATRON_RESHAPED_TENSOR_H_
#define DCP_CHECKPOINT_DIALECTS_MEGATRON_RESHAPED_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/tensor/box.h"

namespace dcp {

// Limits the pieces into which all tensors in a checkpoint are cut.
class CutBudget {
 public:
  // ResourceExhausted once `num_pieces` with `numbers_each` would exceed
  // kMaxCutNumbers.
  absl::Status Take(uint64_t num_pieces, size_t numbers_each);

 private:
  uint64_t left_ = kMaxCutNumbers;
};

// The tensor with `shape` that `stored` holds as blocks: the stored shape (a,
// b, ..., m) means that the shape is cut into a * b * ... equal blocks, and
// that the last dimension runs over a block's m elements in row-major order.
// DataLoss if the shape is not cut evenly, or if a chunk is in several blocks.
// No chunk in `stored` has been located, and none is a part.
absl::StatusOr<TensorEntry> FromBlocks(const TensorEntry& stored,
                                       const Dims& shape, CutBudget& budget);

// The tensors in `stacked`, which has shape (L, ...), in their order. DataLoss
// for a tensor without dimensions or with more than kMaxStackedLayers. No chunk
// in `stacked` has been located; any parts come from FromBlocks.
absl::StatusOr<std::vector<TensorEntry>> Unstack(const TensorEntry& stacked,
                                                 CutBudget& budget);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_MEGATRON_RESHAPED_TENSOR_H_
