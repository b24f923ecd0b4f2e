// SPDX-License-Identifier: Apache-2.0
// Puts a parameter that another parallelism cuts under the engine, in a group
// with only this rank: see ParallelParam. For the thread that trains.
#ifndef FSDP_ENGINE_PARALLEL_GROUP_H_
#define FSDP_ENGINE_PARALLEL_GROUP_H_

#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/engine/comm/comm_context.h"
#include "fsdp/engine/fsdp_param.h"
#include "fsdp/engine/parallel_param.h"

namespace fsdp {

// One parameter that is to be taken over.
struct ParallelTarget {
  at::Tensor leaf;                     // the member; holds the whole values
  std::string name;                    // below the call's module, for errors
  std::vector<FsdpParam::Slot> slots;  // every registry entry that holds it
  std::shared_ptr<ParallelParam> parallel;
};

// Throws c10::ValueError if fully_shard has taken `tensor` already, and
// c10::NotImplementedError for a tensor that cannot be cut: see fully_shard.
void CheckMayBeParallel(const at::Tensor& tensor, const std::string& name);

// Makes `local`, this rank's part by `target.parallel->spec`, the member's
// contents, in place. The registry's parameter becomes another leaf with the
// same memory. `comm` may be shared by several calls.
void TakeOverParallel(const ParallelTarget& target, const at::Tensor& local,
                      const std::shared_ptr<CommContext>& comm);

}  // namespace fsdp

#endif  // FSDP_ENGINE_PARALLEL_GROUP_H_
