// SPDX-License-Identifier: Apache-2.0
// Moves of a part from one layout to another: each is an autograd Function
// whose backward is its dual.
//
//   from       to             forward         backward
//   same       varying        nothing         all-reduce
//   same       shard          cut             all-gather
//   same       partial        divide by n     nothing
//   shard      same           all-gather      cut
//   shard      varying        all-gather      reduce-scatter
//   shard      other shard    all-to-all      all-to-all
//   partial    same           all-reduce      nothing
//   partial    varying        all-reduce      all-reduce
//   partial    shard          reduce-scatter  all-gather
//
// Backward is made of moves, too, so that gradients of gradients exist. Moves
// that communicate are collective over the axis; errors are those of
// mesh_collectives.h. For the thread that trains, and autograd's.
#ifndef FSDP_PARALLEL_SPMD_MOVES_H_
#define FSDP_PARALLEL_SPMD_MOVES_H_

#include "ATen/core/Tensor.h"
#include "fsdp/parallel/spmd/axis.h"
#include "fsdp/parallel/spmd/layout.h"

namespace fsdp::spmd {

// The part under `to` of the activation of sizes `whole` that has `part` under
// `from`. `part` may be Sharded on another axis.
at::Tensor Move(const at::Tensor& part, const Layout& from, const Layout& to,
                const Sizes& whole, const AxisPtr& axis);

// The whole value, for a computation that differs between ranks. If it is a
// parameter that fully_shard averages over this axis too, nothing is reduced in
// backward: the gradient is multiplied by the number of ranks instead, so that
// the mean becomes the sum.
at::Tensor MoveToVarying(const at::Tensor& part, const Layout& from,
                         const Sizes& whole, const AxisPtr& axis);

// The value as it is, under a dual that divides the gradient by the number of
// ranks: for a parameter whose ranks' gradients are added up anyway, in a
// computation that is the same on every rank.
at::Tensor ShareGradient(const at::Tensor& whole, const AxisPtr& axis);
// The dual: the gradient is multiplied by the number of ranks.
at::Tensor MultiplyGradient(const at::Tensor& whole, const AxisPtr& axis);

// Whether `member` is that of a parameter whose gradients fully_shard averages
// over `axis` together with its own axes.
bool IsAveragedByFullyShard(const at::Tensor& member, Axis& axis);

// This rank's part, without a graph and without communication; contiguous.
at::Tensor Cut(const at::Tensor& whole, const Layout& shard, const Axis& axis);

}  // namespace fsdp::spmd

#endif  // FSDP_PARALLEL_SPMD_MOVES_H_
