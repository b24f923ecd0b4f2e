// SPDX-License-Identifier: Apache-2.0
// State dicts of modules and optimizers, sharded or full, under the names that
// PyTorch gives them, so that a checkpoint of a model can be loaded into the
// same model in Python. The calls and options are
// torch.distributed.checkpoint.state_dict's. For the thread that trains,
// between steps; collective calls are made by all ranks, and an error on one
// rank is returned on all. Getting is collective with full_state_dict; setting
// is if the module is sharded, or with broadcast_from_rank0.
#ifndef FSDP_CHECKPOINT_STATE_DICT_H_
#define FSDP_CHECKPOINT_STATE_DICT_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fsdp/checkpoint/state/state_dict_options.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "torch/nn/module.h"
#include "torch/optim/optimizer.h"

namespace fsdp {

// Parameters and buffers by name, aliasing the module's memory (unless options
// copy); sharded ones are DTensors.
absl::StatusOr<StateDict> get_model_state_dict(
    const torch::nn::Module& module, const StateDictOptions& options = {});

// {"state": {name: {"step", "exp_avg", ...}}, "param_groups": [...]}, with the
// keys and hyperparameters that PyTorch's optimizers have; `step` is a float32
// tensor without dimensions; a tied parameter has its first name. Parameters
// that require a gradient and never stepped get the state before a first step.
// Optimizers: torch::optim's SGD, Adam, AdamW, RMSprop, Adagrad, fsdp's
// FusedAdamW, optim::CompactAdamW, optim::Muon and optim::MuonWithAdamW.
absl::StatusOr<StateDict> get_optimizer_state_dict(
    const torch::nn::Module& module, torch::optim::Optimizer& optimizer,
    const StateDictOptions& options = {});

// Both: {model, optimizer}.
absl::StatusOr<std::pair<StateDict, StateDict>> get_state_dict(
    const torch::nn::Module& module, torch::optim::Optimizer& optimizer,
    const StateDictOptions& options = {});

// Copies into the module's own memory; the tensors stay the same objects. A
// module on the meta device under fully_shard must have memory first
// (fsdp::to_empty). Before anything changes, all names, shapes and types are
// checked, and the error lists every mismatch. Any name of a tied parameter
// will do. Types are cast as copy_ casts them.
absl::StatusOr<IncompatibleKeys> set_model_state_dict(
    torch::nn::Module& module, const StateDict& state,
    const StateDictOptions& options = {});
// `state` is nested, flattened, or has numbers for names, as a plain Python
// optimizer's does. Hyperparameters are set too; groups are matched by the
// names in them. State for parameters that `optimizer` does not step is
// ignored, so that one dict can hold several optimizers. If not strict, missing
// entries stay as they are.
absl::Status set_optimizer_state_dict(torch::nn::Module& module,
                                      torch::optim::Optimizer& optimizer,
                                      const StateDict& state,
                                      const StateDictOptions& options = {});
absl::StatusOr<IncompatibleKeys> set_state_dict(
    torch::nn::Module& module, torch::optim::Optimizer& optimizer,
    const StateDict& model_state, const StateDict& optimizer_state,
    const StateDictOptions& options = {});

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_DICT_H_
