// SPDX-License-Identifier: Apache-2.0
// Chooses, checks and loads the weights with which a run begins.
//
// Tested by tests/fsdp/prepare/prepare_weights_test.cc.
#include "fsdp/prepare/weights.h"

#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/tensor.h"
#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "dcp/base/status.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state/torch_status.h"
#include "fsdp/checkpoint/state_dict.h"
#include "fsdp/mesh/mesh_collectives.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/module/init_defaults.h"
#include "fsdp/module/materialize.h"
#include "fsdp/prepare/precision.h"
#include "fsdp/prepare/refusal.h"

namespace fsdp {
namespace {

using torch::nn::Module;

std::vector<std::pair<std::string, at::Tensor>> StateTensors(
    const Module& module) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& dict : {module.named_parameters(), module.named_buffers()}) {
    for (const auto& item : dict) {
      if (item.value().defined()) {
        tensors.emplace_back(item.key(), item.value());
      }
    }
  }
  return tensors;
}

struct MetaCount {
  int64_t num_ranks = 0;  // with the model on the meta device
  bool rank0 = false;
  int64_t num_mixed = 0;  // ranks with only some tensors on meta
};

MetaCount CountMeta(bool is_meta, bool is_mixed, c10::Device device) {
  const bool is_first = get_rank() == 0;
  const at::Tensor counts =
      at::tensor(
          {int64_t{is_meta}, int64_t{is_meta && is_first}, int64_t{is_mixed}})
          .to(device);
  AllReduce(counts, ReduceOp::kSum, world_group());
  const at::Tensor sums = counts.cpu();
  return {.num_ranks = sums[0].item<int64_t>(),
          .rank0 = sums[1].item<int64_t>() != 0,
          .num_mixed = sums[2].item<int64_t>()};
}

// A copy under the names in state dicts, because fully_shard frees the
// originals.
absl::StatusOr<StateDict> CopyTensors(const Module& module) {
  DCP_ASSIGN_OR_RETURN(StateDict state, get_model_state_dict(module));
  for (auto& [name, value] : state) {
    if (auto* tensor = value.get_if<at::Tensor>()) {
      *tensor = tensor->detach().to(c10::kCPU, /*non_blocking=*/false,
                                    /*copy=*/true);
    }
  }
  return state;
}

absl::Status LoadFile(Module& module, const CheckpointConfig& config) {
  const auto load_model =
      *config.cpu_ram_efficient_loading ? load_from_rank0 : load;
  DCP_ASSIGN_OR_RETURN(StateDict model, get_model_state_dict(module));
  const std::string& path = *config.initial_load_path;
  const absl::Status loaded = load_model(model, path, {});
  if (!absl::IsNotFound(loaded)) return loaded;
  // A run's step has the model under this name; the tensors are the same.
  StateDict step = {{"model", model}};
  return load_model(step, path, {}).ok() ? absl::OkStatus() : loaded;
}

absl::Status Initialise(Module& module, const TrainConfig& config,
                        const PrepareOptions& options) {
  if (options.init_weights) {
    return CatchTorch([&] { options.init_weights(module); });
  }
  const auto seed = static_cast<uint64_t>(config.loop.seed->value_or(0));
  const absl::Status status = CatchTorch([&] { init::default_(module, seed); });
  if (!absl::IsUnimplemented(status)) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("the model was built on the meta device, and nothing says "
                   "how its weights begin; give PrepareOptions::init_weights: ",
                   status.message()));
}

// Parameters keep their dtype unless the config sets another, or sets a
// computation precision, with which shards are kept in `dtype`.
bool Casts(const PrecisionConfig& precision) {
  return precision.dtype.place().has_value() ||
         *precision.dtype != dcp::DType::kFloat32 ||
         precision.param_dtype->has_value();
}

}  // namespace

absl::StatusOr<StartingWeights> ChooseWeights(const Module& module,
                                              const CheckpointConfig& config,
                                              bool resumes,
                                              c10::Device device) {
  const auto tensors = StateTensors(module);
  size_t num_meta = 0;
  for (const auto& [name, tensor] : tensors) num_meta += tensor.is_meta();
  StartingWeights weights = {.is_meta = num_meta > 0};
  const bool is_mixed = num_meta > 0 && num_meta < tensors.size();
  DCP_ASSIGN_OR_RETURN(const MetaCount meta, CatchTorch([&] {
                         return CountMeta(num_meta > 0, is_mixed, device);
                       }));
  if (meta.num_mixed > 0) {
    return absl::InvalidArgumentError(
        "some parameters and buffers of the model are on the meta device and "
        "others are not; build all of it under fsdp::MetaDeviceGuard, or none");
  }
  const bool rank0_counts = *config.cpu_ram_efficient_loading;
  if (resumes) {
    weights.from = WeightsFrom::kResumed;
  } else if (!config.initial_load_path->empty()) {
    weights.from = WeightsFrom::kFile;
  } else if (meta.num_ranks == get_world_size()) {
    weights.from = WeightsFrom::kInitialised;
  } else if (rank0_counts && !meta.rank0) {
    weights.from = WeightsFrom::kRank0;
  } else if (meta.num_ranks > 0) {
    return Refusal(config.cpu_ram_efficient_loading,
                   "cpu_ram_efficient_loading", "is ",
                   rank0_counts ? "true, but rank 0 has no weights to send: "
                                  "its model is on the meta device"
                                : "false, but the model is on the meta device "
                                  "on some ranks and not on others");
  }
  if (weights.from == WeightsFrom::kRank0 && meta.num_ranks > 0) {
    weights.whole.emplace();
  }
  return weights;
}

absl::Status ReadyWeights(Module& module, const TrainConfig& config,
                          StartingWeights& weights) {
  if (Casts(config.precision)) {
    const c10::NoGradGuard no_grad;
    DCP_ASSIGN_OR_RETURN(const c10::ScalarType dtype,
                         ToScalarType(config.precision.dtype, "dtype"));
    for (const auto& [name, tensor] : StateTensors(module)) {
      if (tensor.is_floating_point()) tensor.set_data(tensor.to(dtype));
    }
  }
  if (weights.from != WeightsFrom::kRank0) return absl::OkStatus();
  if (!weights.whole.has_value()) {
    return CatchTorch([&] { broadcast_module(module, world_group()); });
  }
  if (get_rank() == 0) {
    DCP_ASSIGN_OR_RETURN(weights.whole, CopyTensors(module));
  }
  return absl::OkStatus();
}

absl::Status PlaceWeights(Module& module, const TrainConfig& config,
                          const PrepareOptions& options, c10::Device device,
                          StartingWeights& weights) {
  if (weights.is_meta) {
    DCP_RETURN_IF_ERROR(CatchTorch([&] { to_empty(module, device); }));
  }
  const auto& path = config.checkpoint.initial_load_path;
  switch (weights.from) {
    case WeightsFrom::kBuilt:
      return absl::OkStatus();
    case WeightsFrom::kFile:
      return dcp::Annotate(LoadFile(module, config.checkpoint),
                           SettingPlace(path, "initial_load_path"));
    case WeightsFrom::kInitialised:
      return Initialise(module, config, options);
    case WeightsFrom::kResumed:
      // A resumed step fills all tensors, but a program's init_weights is still
      // called.
      return weights.is_meta && options.init_weights
                 ? Initialise(module, config, options)
                 : absl::OkStatus();
    case WeightsFrom::kRank0:
      if (!weights.whole.has_value()) return absl::OkStatus();
      return set_model_state_dict(
                 module, *weights.whole,
                 {.full_state_dict = true, .broadcast_from_rank0 = true})
          .status();
  }
  return absl::OkStatus();
}

}  // namespace fsdp
