// SPDX-License-Identifier: Apache-2.0
// ParallelParam: a parameter that a parallelism other than fully_shard's
// (tensor, expert) has cut. The module's member is then this rank's part. Such
// a parameter is under the engine from the start, in a group with only this
// rank (parallel_group.h), so that optimizers, gradient clipping and
// checkpoints see one kind of parameter; a later fully_shard call takes it over
// and adds its own axes. For the thread that trains.
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
  // The ranks among which a replicated parameter's gradient must still be
  // summed, because each computes a share; null if every rank has the whole
  // gradient.
  ProcessGroup gradient_group = nullptr;
  // Whether operators that take the member follow rules (fsdp/parallel/spmd):
  // the member then means the whole parameter. Otherwise it is a plain part.
  bool has_rules = false;
  // For a table cut by rows: the whole table's row for which lookups give no
  // gradient. It is kept here and not in the module, because torch::nn compares
  // padding_idx with the member's rows, which are this rank's.
  std::optional<int64_t> padding_idx = {};
};

}  // namespace fsdp

#endif  // FSDP_ENGINE_PARALLEL_PARAM_H_
