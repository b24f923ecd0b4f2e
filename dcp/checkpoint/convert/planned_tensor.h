// SPDX-License-Identifier: Apache-2.0
// PlannedTensor: the entry in a tensor parallelism plan for a checkpoint's
// tensor, which is a parameter or an optimizer's state for one. Pure; any
// thread.
#ifndef DCP_CHECKPOINT_CONVERT_PLANNED_TENSOR_H_
#define DCP_CHECKPOINT_CONVERT_PLANNED_TENSOR_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/tensor/parallel_plan.h"
#include "dcp/tensor/placement.h"

namespace dcp {

struct PlannedTensor {
  const ParallelPlan::Entry* entry = nullptr;  // null: not in the plan
  Placement placement;                         // on the plan's axis
};

// Names are those of torch.distributed.checkpoint, which flattens {"model":
// ..., "optimizer": ...}: the last word of a parameter's name is weight or bias
// ("model.layers.0.wq.weight"), and an optimizer's entry has one more word
// after it ("optimizer.state.layers.0.wq.weight.exp_avg"). Other names are not
// in the plan. The leading words app, model, module, state, optim, optimizer
// and optimizers (with the word after it, an optimizer's name) may belong to
// the module's path or not, so the plan's patterns may begin after each of
// them; the longest path that matches counts.
//
// State with another dimension count than the parameter, such as `step`, is
// Replicate. InvalidArgument as for ParallelPlan::Find and ParameterPlacement.
absl::StatusOr<PlannedTensor> FindPlanned(const ParallelPlan& plan,
                                          absl::string_view name,
                                          size_t num_dims);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_PLANNED_TENSOR_H_
