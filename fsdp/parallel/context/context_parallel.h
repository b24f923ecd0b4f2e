// SPDX-License-Identifier: Apache-2.0
// context_parallel: long sequences, of which each rank of an axis has a part.
// The model is unmodified: its positions, rotary tables and masks, which it
// makes for the whole sequence, are cut where they meet the parts, and
// attention gathers keys and values. As torch.distributed.tensor.experimental's
// context_parallel with the all-gather of keys and values. For the thread that
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

#include "ATen/core/Tensor.h"
#include "fsdp/mesh/device_mesh.h"

namespace fsdp {

struct ContextParallelOptions {
  int64_t seq_dim = 1;
  // Gives each rank a piece from the front of the sequence and one from the
  // back, so that all have the same work under causal attention.
  bool load_balance = true;
};

// Replaces each of `tensors`, which every rank of `mesh` (one axis) has whole
// and equal, by an activation that is cut along its sequence; operators on it
// compute with this rank's part, and its sizes stay those of the whole.
// Communicates nothing. fsdp::full_tensor gives the whole back, in order.
//
// Gradients of parameters are summed over the axis: by fully_shard in its own
// reduction, if its mesh contains the axis, otherwise one by one.
//
// Throws c10::ValueError for a mesh of several axes, and, with load_balance,
// for a sequence that twice the number of ranks does not divide;
// c10::IndexError for a dimension that a tensor does not have. No tensor has
// been replaced then.
void context_parallel(const DeviceMesh& mesh,
                      std::initializer_list<at::Tensor*> tensors,
                      const ContextParallelOptions& options = {});

}  // namespace fsdp

#endif  // FSDP_PARALLEL_CONTEXT_CONTEXT_PARALLEL_H_
