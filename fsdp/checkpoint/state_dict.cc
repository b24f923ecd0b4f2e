// SPDX-License-Identifier: Apache-2.0
// [Note: setting]
//   1. If only rank 0's dict counts, it is described to all ranks.
//   2. Each rank plans all copies and lists every error, without changing
//      anything.
//   3. The ranks agree that there is no error.
//   4. The copies are made, and the ranks agree that they succeeded.
#include "fsdp/checkpoint/state_dict.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "fsdp/checkpoint/ranks/process_group_coordinator.h"
#include "fsdp/checkpoint/ranks/rank0_state.h"
#include "fsdp/checkpoint/state/full_tensors.h"
#include "fsdp/checkpoint/state/loaded_optimizer.h"
#include "fsdp/checkpoint/state/model_state.h"
#include "fsdp/checkpoint/state/module_entries.h"
#include "fsdp/checkpoint/state/optimizer_state.h"
#include "fsdp/checkpoint/state/tensor_copies.h"
#include "fsdp/checkpoint/state/torch_status.h"

namespace fsdp {
namespace {

using torch::nn::Module;
using torch::optim::Optimizer;
using CoordinatorPtr = std::shared_ptr<ProcessGroupCoordinator>;

int64_t RankInGroup(const ProcessGroup& group) {
  return group == nullptr ? get_rank() : group->getRank();
}

// Converts the dicts in `states` as the options say, or returns `status` if
// they could not be made, on every rank if any rank failed.
absl::Status Finish(const Module& module, const StateDictOptions& options,
                    const absl::Status& status,
                    std::initializer_list<StateDict*> states) {
  if (options.full_state_dict && IsSharded(module)) {
    DCP_ASSIGN_OR_RETURN(
        const CoordinatorPtr coordinator,
        ProcessGroupCoordinator::ForTraining(options.process_group));
    DCP_RETURN_IF_ERROR(dcp::Agree(*coordinator, status));
  }
  DCP_RETURN_IF_ERROR(status);
  if (!options.full_state_dict && !options.cpu_offload) return status;
  const FullTensorsOptions full = {
      .full = options.full_state_dict,
      .to_cpu = options.cpu_offload,
      .keep = !(options.full_state_dict && options.cpu_offload) ||
              RankInGroup(options.process_group) == 0};
  for (StateDict* state : states) {
    DCP_RETURN_IF_ERROR(MakeFullTensors(full, *state));
  }
  return absl::OkStatus();
}

absl::StatusOr<StateDict> OptimizerStateUnder(const Module& module,
                                              Optimizer& optimizer,
                                              const StateDictOptions& options) {
  DCP_ASSIGN_OR_RETURN(StateDict nested, OptimizerState(module, optimizer));
  if (!options.flatten_optimizer_state_dict) return nested;
  return FlattenOptimizerState(nested);
}

// The targets of one call.
struct NamedTargets {
  Module& module;
  const StateDict* model_state;  // null: not the module
  Optimizer* optimizer;
  const StateDict* optimizer_state;  // null: not the optimizer
};

struct Plan {
  ModelPlan model;
  OptimizerPlan optimizer;
};

absl::StatusOr<Plan> MakePlan(const NamedTargets& targets,
                              const StateDictOptions& options,
                              const CopyRules& rules) {
  Plan plan;
  absl::Status model_status;
  absl::Status optimizer_status;
  if (targets.model_state != nullptr) {
    Mismatches mismatches;
    DCP_ASSIGN_OR_RETURN(
        plan.model, PlanModel(targets.module, *targets.model_state, options,
                              rules, mismatches));
    model_status = mismatches.ToStatus("model state dict");
  }
  if (targets.optimizer_state != nullptr) {
    Mismatches mismatches;
    DCP_ASSIGN_OR_RETURN(
        plan.optimizer,
        PlanOptimizer(targets.module, *targets.optimizer,
                      *targets.optimizer_state, options, rules, mismatches));
    optimizer_status = mismatches.ToStatus("optimizer state dict");
  }
  if (!model_status.ok() && !optimizer_status.ok()) {
    return absl::Status(
        model_status.code(),
        absl::StrCat(model_status.message(), "; ", optimizer_status.message()));
  }
  model_status.Update(optimizer_status);
  DCP_RETURN_IF_ERROR(model_status);
  return plan;
}

absl::Status Execute(const NamedTargets& targets, Plan& plan,
                     const StateDictOptions& options,
                     ProcessGroupCoordinator* coordinator) {
  for (const auto* copies : {&plan.model.copies, &plan.optimizer.copies}) {
    if (options.broadcast_from_rank0) {
      DCP_RETURN_IF_ERROR(
          CopyFromRank0(*coordinator, *copies, options.window_bytes));
      continue;
    }
    for (const TensorCopy& copy : *copies) DCP_RETURN_IF_ERROR(RunCopy(copy));
  }
  if (targets.optimizer_state == nullptr) return absl::OkStatus();
  return std::move(plan.optimizer).Commit(*targets.optimizer);
}

// Returns any rank's error, or only the caller's if the call is not collective.
absl::Status AgreeIf(ProcessGroupCoordinator* coordinator,
                     const absl::Status& status) {
  return coordinator == nullptr ? status : dcp::Agree(*coordinator, status);
}

absl::StatusOr<IncompatibleKeys> Set(NamedTargets targets,
                                     const StateDictOptions& options) {
  if (options.broadcast_from_rank0 && !options.full_state_dict) {
    return absl::InvalidArgumentError(
        "full_state_dict must be true when broadcast_from_rank0 is");
  }
  CoordinatorPtr coordinator;
  CopyRules rules = {.full = options.full_state_dict};
  StateDict shared_model;
  StateDict shared_optimizer;
  if (options.broadcast_from_rank0 || IsSharded(targets.module)) {
    DCP_ASSIGN_OR_RETURN(coordinator, ProcessGroupCoordinator::ForTraining(
                                          options.process_group));
  }
  if (options.broadcast_from_rank0) {
    rules.values_elsewhere = coordinator->rank() != 0;
    if (targets.model_state != nullptr) {
      DCP_ASSIGN_OR_RETURN(shared_model,
                           ShareRank0State(*coordinator, *targets.model_state));
      targets.model_state = &shared_model;
    }
    if (targets.optimizer_state != nullptr) {
      DCP_ASSIGN_OR_RETURN(
          shared_optimizer,
          ShareRank0State(*coordinator, *targets.optimizer_state));
      targets.optimizer_state = &shared_optimizer;
    }
  }
  absl::StatusOr<Plan> plan = MakePlan(targets, options, rules);
  DCP_RETURN_IF_ERROR(AgreeIf(coordinator.get(), plan.status()));
  absl::Status done = targets.model_state == nullptr
                          ? absl::OkStatus()
                          : CatchTorch([&] { DropGathered(targets.module); });
  // A rank that cannot go on says so before others wait for data from it.
  DCP_RETURN_IF_ERROR(AgreeIf(coordinator.get(), done));
  done = Execute(targets, *plan, options, coordinator.get());
  DCP_RETURN_IF_ERROR(AgreeIf(coordinator.get(), done));
  return std::move(plan->model.keys);
}

}  // namespace

absl::StatusOr<StateDict> get_model_state_dict(
    const Module& module, const StateDictOptions& options) {
  absl::StatusOr<StateDict> state = ModelState(module, options);
  StateDict none;
  DCP_RETURN_IF_ERROR(
      Finish(module, options, state.status(), {state.ok() ? &*state : &none}));
  return state;
}

absl::StatusOr<StateDict> get_optimizer_state_dict(
    const Module& module, Optimizer& optimizer,
    const StateDictOptions& options) {
  absl::StatusOr<StateDict> state =
      OptimizerStateUnder(module, optimizer, options);
  StateDict none;
  DCP_RETURN_IF_ERROR(
      Finish(module, options, state.status(), {state.ok() ? &*state : &none}));
  return state;
}

absl::StatusOr<std::pair<StateDict, StateDict>> get_state_dict(
    const Module& module, Optimizer& optimizer,
    const StateDictOptions& options) {
  std::pair<StateDict, StateDict> states;
  const auto get = [&]() -> absl::Status {
    DCP_ASSIGN_OR_RETURN(states.first, ModelState(module, options));
    DCP_ASSIGN_OR_RETURN(states.second,
                         OptimizerStateUnder(module, optimizer, options));
    return absl::OkStatus();
  };
  DCP_RETURN_IF_ERROR(
      Finish(module, options, get(), {&states.first, &states.second}));
  return states;
}

absl::StatusOr<IncompatibleKeys> set_model_state_dict(
    Module& module, const StateDict& state, const StateDictOptions& options) {
  return Set({.module = module,
              .model_state = &state,
              .optimizer = nullptr,
              .optimizer_state = nullptr},
             options);
}

absl::Status set_optimizer_state_dict(Module& module, Optimizer& optimizer,
                                      const StateDict& state,
                                      const StateDictOptions& options) {
  return Set({.module = module,
              .model_state = nullptr,
              .optimizer = &optimizer,
              .optimizer_state = &state},
             options)
      .status();
}

absl::StatusOr<IncompatibleKeys> set_state_dict(
    Module& module, Optimizer& optimizer, const StateDict& model_state,
    const StateDict& optimizer_state, const StateDictOptions& options) {
  return Set({.module = module,
              .model_state = &model_state,
              .optimizer = &optimizer,
              .optimizer_state = &optimizer_state},
             options);
}

}  // namespace fsdp
