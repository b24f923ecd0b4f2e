// SPDX-License-Identifier: Apache-2.0
// Ring attention: each rank on an axis has some queries, and some keys and
// values, which move round the ring of ranks while the blocks that have arrived
// are computed (Liu et al. 2023). No rank ever has more than two blocks of
// keys and values, or scores of more than one tile. For the thread that trains,
// and autograd's.
#ifndef FSDP_PARALLEL_CONTEXT_RING_ATTENTION_H_
#define FSDP_PARALLEL_CONTEXT_RING_ATTENTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {

// This rank's queries [q_begin, q_begin + q_length) attend to the first
// `k_length` keys in a block. No length is zero.
struct RingTile {
  int64_t q_begin;
  int64_t q_length;
  int64_t k_length;
  // Query q_begin + i uses the keys up to i only; then q_length = k_length.
  bool is_causal;

  friend bool operator==(const RingTile&, const RingTile&) = default;
};

struct RingPlan {
  ProcessGroup group;
  // The computation, in words that are the same on every rank: ranks that
  // differ get an error.
  std::string description;
  // How many keys each rank has.
  std::vector<int64_t> key_lengths;
  // For each rank, how this rank's queries use that rank's keys. No tile: not
  // at all.
  std::vector<std::vector<RingTile>> tiles;
  // The factor for the products of queries and keys.
  double scale;
};

// softmax(scale q k^T) v over the keys of all ranks, for this rank's queries:
// [batch, heads, queries, head size of v], in q's dtype. q is [batch, heads,
// queries, head size], k and v are [batch, key heads, keys, head size]; key
// heads divide heads, and each belongs to a group of neighbouring heads. The
// blocks are merged in float32, or float64 for float64. Backward sends keys,
// values and their gradients, which are float32, round the same ring.
//
// Collective over the group, as its backward is. Throws c10::Error if ranks
// differ, c10::DistBackendError if a rank does not come, and
// c10::NotImplementedError in a backward with create_graph.
at::Tensor RingAttention(const at::Tensor& q, const at::Tensor& k,
                         const at::Tensor& v, const RingPlan& plan);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_CONTEXT_RING_ATTENTION_H_
