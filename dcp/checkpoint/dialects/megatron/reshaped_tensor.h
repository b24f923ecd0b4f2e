// SPDX-License-Identifier: Apache-2.0
// Megatron-core stores some tensors in another shape than they have: blocks of
// a tensor as rows of one dimension, and the layers of a model as one tensor.
// These functions give such tensors their own shape by computing where the
// elements of each chunk are; no element moves. Pure; any thread.
// Source: megatron/core/dist_checkpointing/strategies/resharding.py
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

// What all tensors of a checkpoint may be cut into together.
class CutBudget {
 public:
  // ResourceExhausted once `num_pieces` of `numbers_each` would exceed
  // kMaxCutNumbers.
  absl::Status Take(uint64_t num_pieces, size_t numbers_each);

 private:
  uint64_t left_ = kMaxCutNumbers;
};

// The tensor of `shape` that `stored` holds as blocks: the stored shape (a, b,
// ..., m) says that the shape is cut into a * b * ... equal blocks, and that
// the last dimension runs over the m elements of a block in row-major order.
// DataLoss if the shape is not cut evenly, or if a chunk is in several blocks.
// No chunk of `stored` has been located, and none is a part.
absl::StatusOr<TensorEntry> FromBlocks(const TensorEntry& stored,
                                       const Dims& shape, CutBudget& budget);

// The tensors that `stacked`, of shape (L, ...), consists of, in their order.
// DataLoss for a tensor without dimensions or with more than kMaxStackedLayers.
// No chunk of `stacked` has been located; its parts, if any, are of FromBlocks.
absl::StatusOr<std::vector<TensorEntry>> Unstack(const TensorEntry& stacked,
                                                 CutBudget& budget);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_MEGATRON_RESHAPED_TENSOR_H_
