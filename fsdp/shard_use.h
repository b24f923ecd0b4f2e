// What an operator means that takes a shard, which is what
// module->parameters() gives: a step of an optimizer, which works on this
// rank's part, or a forward that reads its parameters through the registry,
// which is given the gathered parameter in the shard's place. Called by the
// lazy key, on any thread.
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
// A view of a shard cannot be traded for one of the parameter any more: where
// the parameter would be meant, it is refused.
#ifndef FSDP_SHARD_USE_H_
#define FSDP_SHARD_USE_H_

#include <cstddef>

#include "ATen/core/function_schema.h"
#include "ATen/core/stack.h"

namespace fsdp {

// Puts parameters in the place of shards on the stack, whose arguments start
// at `begin`, where they are meant. True when it did. Throws c10::Error for
// what would be wrong in silence.
bool ResolveShards(const c10::FunctionSchema& schema, torch::jit::Stack& stack,
                   size_t begin);

// Whether the result takes the place of the shard (Module::to).
bool MovesShards(const c10::FunctionSchema& schema);

}  // namespace fsdp

#endif  // FSDP_SHARD_USE_H_
