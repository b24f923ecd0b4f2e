// SPDX-License-Identifier: Apache-2.0
// Changes a tensor's placements on a mesh: the steps along single axes
// (all-gather, all-to-all, reduce-scatter, all-reduce, local cut) that lead
// from one list of placements to another. DTensor::redistribute is the public
// call. For the thread that trains; collective over the mesh.
#ifndef FSDP_MESH_REDISTRIBUTE_H_
#define FSDP_MESH_REDISTRIBUTE_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/mesh/dtensor_spec.h"
#include "fsdp/mesh/placement.h"

namespace fsdp {

// How a dimension's `length` indices are dealt to the ranks on an axis.
struct AxisCut {
  struct Piece {
    int64_t begin;   // index in the dimension
    int64_t length;  // how many indices
  };

  int64_t length;                // the dimension's
  int64_t max_length;            // the longest on any rank; others are padded
  std::vector<int64_t> lengths;  // by rank on the axis
  // By rank on the axis, in increasing order: one piece, several for an uneven
  // strided shard, or none.
  std::vector<std::vector<Piece>> pieces;
};
AxisCut MakeAxisCut(int64_t length, const Placement& shard, int64_t num_ranks);

// The pieces of rank `index` on the axis, joined on `dim`; a copy, contiguous.
at::Tensor TakePieces(const at::Tensor& tensor, int64_t dim, const AxisCut& cut,
                      int64_t index);

// Every rank's pieces: [ranks, max_length, ...the other dimensions],
// contiguous, with short ones padded with zeros.
at::Tensor PackBlocks(const at::Tensor& tensor, int64_t dim,
                      const AxisCut& cut);

// Returns the local tensor under `to` for a tensor with the local tensor
// `local` under `from`: `local` itself when nothing changes, else a new
// contiguous tensor that does not require grad. `to` is normalized and has an
// entry per axis. Throws c10::Error for a Partial in `to` that `from` does not
// have, and c10::NotImplementedError for Partials that do not commute (a sum
// and a maximum).
at::Tensor Redistribute(const at::Tensor& local, const DTensorSpec& from,
                        const Placements& to);

}  // namespace fsdp

#endif  // FSDP_MESH_REDISTRIBUTE_H_
