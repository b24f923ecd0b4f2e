// SPDX-License-Identifier: Apache-2.0
// Moves a part from one layout to another: each move is an autograd Function,
// with the dual move as backward.
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
// Backward also consists of moves, so that gradients of gradients exist. Moves
// that communicate are collective over the axis; errors are those in
// mesh_collectives.h. For the thread that trains, and autograd's.
#ifndef FSDP_PARALLEL_SPMD_MOVES_H_
#define FSDP_PARALLEL_SPMD_MOVES_H_

#include "ATen/core/Tensor.h"
#include "fsdp/parallel/spmd/axis.h"
#include "fsdp/parallel/spmd/layout.h"

namespace fsdp::spmd {

// Given the `part` under `from` of an activation with sizes `whole`, returns
// the part under `to`. `part` may be Sharded on another axis.
at::Tensor Move(const at::Tensor& part, const Layout& from, const Layout& to,
                const Sizes& whole, const AxisPtr& axis);

// The whole value, for a computation that differs between ranks. If it is a
// parameter that fully_shard averages over this axis too, nothing is reduced in
// backward: the gradient is multiplied by the rank count instead, so that the
// mean becomes the sum.
at::Tensor MoveToVarying(const at::Tensor& part, const Layout& from,
                         const Sizes& whole, const AxisPtr& axis);

// The value as it is, under a dual that divides the gradient by the rank count:
// for a parameter with gradients that are added up over the ranks anyway, in a
// computation that is the same on every rank.
at::Tensor ShareGradient(const at::Tensor& whole, const AxisPtr& axis);
// The dual: the gradient is multiplied by the rank count.
at::Tensor MultiplyGradient(const at::Tensor& whole, const AxisPtr& axis);

// Whether `member` belongs to a parameter for which fully_shard averages
// gradients over `axis` together with fully_shard's axes.
bool IsAveragedByFullyShard(const at::Tensor& member, Axis& axis);

// This rank's part, without a graph and without communication; contiguous.
at::Tensor Cut(const at::Tensor& whole, const Layout& shard, const Axis& axis);

}  // namespace fsdp::spmd

#endif  // FSDP_PARALLEL_SPMD_MOVES_H_
