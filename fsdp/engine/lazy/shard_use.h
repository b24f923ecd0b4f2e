// SPDX-License-Identifier: Apache-2.0
// Decides whether an operator on a shard, which module->parameters() returns,
// means the shard or the parameter. An optimizer's step works on this rank's
// part; a forward that reads its parameters through the registry gets the
// gathered parameter instead of the shard. Called by the lazy key, on any
// thread.
//
// [Note: shards in operators]
//   - An operator that writes into the shard works on it, and the group's
//     gathered parameters are out of date from then on.
//   - In a ForwardScope an operator means the parameter, in a ShardScope the
//     shard.
//   - An operator that also has other tensors means the shard if it works
//     element by element on tensors with the shard's shape (moments, averages);
//     otherwise it is a forward.
//   - An operator without other tensors means the shard. One that computes, as
//     a norm does, warns once, because it computes with a part. Containers
//     (ParameterList) are an exception, because their owner's forward has no
//     member to read: if gradients are recorded, the operator means the
//     parameter; if not, an operator that copies or views works on the shard,
//     and others are refused.
//
// A view of a shard cannot be replaced with a view of the parameter. Where the
// operator would mean the parameter, the view is refused.
#ifndef FSDP_ENGINE_LAZY_SHARD_USE_H_
#define FSDP_ENGINE_LAZY_SHARD_USE_H_

#include <cstddef>

#include "ATen/core/Tensor.h"
#include "ATen/core/function_schema.h"
#include "ATen/core/stack.h"

namespace fsdp {

// Replaces shards among the arguments, which start at `begin` on the stack,
// with parameters where those are meant. Returns whether it did. Throws
// c10::Error where the result would be silently wrong.
bool ResolveShards(const c10::FunctionSchema& schema, torch::jit::Stack& stack,
                   size_t begin);

// Tells the engine that something other than an operator which passes the lazy
// key is about to write into `tensor`: memory from a file or another rank, or a
// fused kernel. If it is a shard or a view of one, the gathered parameters are
// out of date from now on. Waits for a save in the background that still copies
// the tensor. For the thread that trains; the write may happen on another one.
void NoteShardWrite(const at::Tensor& tensor);

}  // namespace fsdp

#endif  // FSDP_ENGINE_LAZY_SHARD_USE_H_
