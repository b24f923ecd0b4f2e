// SPDX-License-Identifier: Apache-2.0
// context_parallel: long sequences that are divided among an axis's ranks. The
// model is unmodified: it makes positions, rotary tables and masks for the
// whole sequence. They are cut where they meet the parts. Attention, which is
// scaled_dot_product_attention, gets the other ranks' keys and values by one of
// three methods; a model that computes it from products gathers them. As
// torch.distributed.tensor.experimental's context_parallel. For the thread that
// trains.
//
//   auto mesh = fsdp::init_device_mesh("cuda", {2, 4}, {"dp", "cp"});
//   fsdp::fully_shard(model, {.mesh = mesh[{"dp", "cp"}].flatten()});
//   fsdp::context_parallel(mesh["cp"], {&tokens, &targets});
//   loss(model(tokens), targets).backward();
#ifndef FSDP_PARALLEL_CONTEXT_CONTEXT_PARALLEL_H_
#define FSDP_PARALLEL_CONTEXT_CONTEXT_PARALLEL_H_

#include <cstdint>
#include <initializer_list>
#include <string>

#include "ATen/core/Tensor.h"
#include "fsdp/mesh/device_mesh.h"

namespace fsdp {

struct ContextParallelOptions {
  int64_t seq_dim = 1;
  // Gives each rank a piece from the front of the sequence and one from the
  // back, so that all have the same work under causal attention.
  bool load_balance = true;
  // How attention gets the keys and values of other ranks, by PyTorch's names
  // (set_rotate_method) where it has one. With n ranks, S keys in a sequence:
  //   "allgather"  Each rank gathers all, and under a causal mask makes its
  //                rows of the mask: S * S / n elements. Takes every argument.
  //   "alltoall"   Ring attention: they move from rank to rank while the blocks
  //                that have arrived are computed. No rank has more than three
  //                ranks' keys at once, nor scores of more than a tile. Takes
  //                neither attn_mask nor dropout, and under is_causal as many
  //                keys as queries; has no second derivative.
  //   "ulysses"    Two all-to-alls: each rank attends with 1 / n of the heads
  //                over the whole sequence. The ranks divide the heads of
  //                queries and those of keys. Takes a mask, but no dropout.
  // Other arguments of attention are errors on every rank, before any
  // collective. The method holds for the axis of `mesh` until the next call.
  std::string method = "allgather";
};

// Replaces each of `tensors`, which must be whole and equal on every rank in
// `mesh` (one axis), with an activation that is cut along the sequence.
// Operators on it compute with this rank's part, and it still reports the whole
// sizes. Communicates nothing. fsdp::full_tensor gives the whole back, in
// order.
//
// Parameter gradients are summed over the axis: by fully_shard in the same
// reduction, if the mesh there contains the axis, otherwise one by one.
//
// Throws c10::ValueError for a mesh with several axes, for a method without
// such a name, and, with load_balance, for a sequence length that is not a
// multiple of twice the rank count; c10::IndexError for a dimension that a
// tensor does not have. No tensor has been replaced then.
void context_parallel(const DeviceMesh& mesh,
                      std::initializer_list<at::Tensor*> tensors,
                      const ContextParallelOptions& options = {});

}  // namespace fsdp

#endif  // FSDP_PARALLEL_CONTEXT_CONTEXT_PARALLEL_H_
