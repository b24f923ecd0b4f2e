// SPDX-License-Identifier: Apache-2.0
// ParallelParam: what a parallelism other than fully_shard's (tensor, expert)
// has made of a parameter. The module's member is then this rank's part. Such a
// parameter is under the engine from the start, in a group of this rank alone
// (parallel_group.h), so that optimizers, gradient clipping and checkpoints see
// one kind of parameter; a later fully_shard call takes it over and adds its
// own axes. For the thread that trains.
#ifndef FSDP_ENGINE_PARALLEL_PARAM_H_
#define FSDP_ENGINE_PARALLEL_PARAM_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "fsdp/mesh/dtensor_spec.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {

struct ParallelParam {
  explicit ParallelParam(DTensorSpec spec_of_whole)
      : spec(std::move(spec_of_whole)) {}
  virtual ~ParallelParam() = default;

  // The whole tensor on the axes of this parallelism.
  DTensorSpec spec;
  // The ranks among which the gradient of a replicated parameter is still to be
  // summed, because each computes a share of it; null if every rank has all of
  // it.
  ProcessGroup gradient_group = nullptr;
  // Whether operators that take the member follow rules (fsdp/parallel/spmd):
  // the member then means the whole parameter. Otherwise it is a plain part.
  bool has_rules = false;
  // The row of a whole table, cut by rows, that lookups give no gradient. The
  // module does not have it any more, because torch::nn compares its
  // padding_idx with the rows of the member, which are this rank's.
  std::optional<int64_t> padding_idx = {};
};

}  // namespace fsdp

#endif  // FSDP_ENGINE_PARALLEL_PARAM_H_
