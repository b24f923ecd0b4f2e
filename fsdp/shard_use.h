// Decides what an operator means by a shard, which module->parameters() gives
// it. A step of an optimizer works on this rank's part; a forward that reads
// its parameters through the registry gets the gathered parameter instead of
// the shard. Called by the lazy key, on any thread.
//
// [Note: shards in operators]
//   - An operator that writes into the shard works on it, and what is gathered
//     of the group is old from then on.
//   - In a ForwardScope the parameter is meant, in a ShardScope the shard.
//   - With other tensors: element by element on tensors of the shard's own
//     shape (moments, averages) the shard is meant; otherwise it is a forward.
//   - With nothing else: the shard. Containers (ParameterList) differ, as
//     their owner's forward has no member to read: with gradients recorded the
//     parameter is meant; without, what copies or views works on the shard, and
//     the rest is refused.
// A view of a shard cannot be replaced with a view of the parameter: it is
// refused where the parameter would be meant.
#ifndef FSDP_SHARD_USE_H_
#define FSDP_SHARD_USE_H_

#include <cstddef>

#include "ATen/core/function_schema.h"
#include "ATen/core/stack.h"

namespace fsdp {

// Replaces shards on the stack, whose arguments start at `begin`, with
// parameters where those are meant. Returns whether it did. Throws c10::Error
// for what would be silently wrong.
bool ResolveShards(const c10::FunctionSchema& schema, torch::jit::Stack& stack,
                   size_t begin);

// Whether the result takes the place of the shard (Module::to).
bool MovesShards(const c10::FunctionSchema& schema);

}  // namespace fsdp

#endif  // FSDP_SHARD_USE_H_
