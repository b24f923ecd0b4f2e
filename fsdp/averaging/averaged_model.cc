// SPDX-License-Identifier: Apache-2.0

#include "fsdp/averaging/averaged_model.h"

#include <unordered_map>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/zeros.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "c10/core/impl/LocalDispatchKeySet.h"
#include "c10/util/Exception.h"
#include "dcp/base/status.h"
#include "fsdp/checkpoint/state/module_entries.h"
#include "fsdp/checkpoint/state/tensor_copies.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/mesh/placement.h"

namespace fsdp::optim {
namespace {

constexpr char kCount[] = "n_averaged";
constexpr char kModule[] = "module.";
constexpr char kSwapped[] =
    "an AveragesScope has put the averages into the model; they can be "
    "changed and saved when it has ended";

// From there on every operator means the shards.
class OnShards {
  const at::NoGradGuard no_grad_;
  const c10::impl::ExcludeDispatchKeyGuard exclude_{kLazyKey};
};

}  // namespace

AveragedModel::AveragedModel(const torch::nn::Module& model,
                             const AveragedModelOptions& options)
    : options_([&] {
        AveragedModelOptions result = options;
        if (!result.avg_fn) result.avg_fn = get_swa_avg_fn();
        return result;
      }()),
      n_averaged_(at::zeros({}, at::TensorOptions(at::kLong))) {
  options_.steps.Check();
  const OnShards on_shards;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> copies;
  for (const ModuleEntry& entry : ListEntries(model)) {
    TORCH_CHECK_VALUE(!entry.tensor.is_meta(), "AveragedModel: ", entry.name,
                      " is on the meta device; give the model memory first, "
                      "as fsdp::to_empty does");
    const auto [copy, is_first] =
        copies.emplace(entry.tensor.unsafeGetTensorImpl(), at::Tensor());
    if (is_first) {
      const at::Tensor part = entry.tensor.detach();
      copy->second =
          part.to(options_.device.value_or(part.device()), part.scalar_type(),
                  /*non_blocking=*/false, /*copy=*/true);
    }
    averages_.push_back({.name = entry.name,
                         .tensor = copy->second,
                         .spec = FindSpec(entry.tensor),
                         .is_parameter = entry.is_parameter,
                         .is_first = is_first});
  }
}

std::vector<at::Tensor> AveragedModel::MatchingTensors(
    const torch::nn::Module& model) const {
  const std::vector<ModuleEntry> entries = ListEntries(model);
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string& name = entries[i].name;
    TORCH_CHECK_VALUE(
        i < averages_.size() && averages_[i].name == name,
        "AveragedModel: the model has ", name,
        i < averages_.size()
            ? absl::StrCat(" where the averages have ", averages_[i].name)
            : " more than the averages",
        "; an average is of one model");
    const at::Tensor& average = averages_[i].tensor;
    TORCH_CHECK_VALUE(entries[i].tensor.sizes() == average.sizes(),
                      "AveragedModel: this rank's part of ", name,
                      " has shape ", entries[i].tensor.sizes(),
                      ", and its average ", average.sizes(),
                      "; make the average after fully_shard, and of the same "
                      "model");
    tensors.push_back(entries[i].tensor);
  }
  TORCH_CHECK_VALUE(entries.size() == averages_.size(),
                    "AveragedModel: the model does not have ",
                    averages_[entries.size()].name,
                    " of the averages; an average is of one model");
  return tensors;
}

void AveragedModel::update_parameters(const torch::nn::Module& model) {
  TORCH_CHECK(!is_swapped_, "AveragedModel: ", kSwapped);
  const std::vector<at::Tensor> tensors = MatchingTensors(model);
  const OnShards on_shards;
  const int64_t count = n_averaged();
  for (size_t i = 0; i < averages_.size(); ++i) {
    const Average& average = averages_[i];
    if (!average.is_first) continue;
    const at::Tensor current = tensors[i].detach().to(average.tensor.device());
    const bool is_averaged = average.is_parameter || options_.use_buffers;
    average.tensor.copy_(is_averaged && count > 0
                             ? options_.avg_fn(average.tensor, current, count)
                             : current);
  }
  n_averaged_.add_(1);
}

bool AveragedModel::update_after_step(const torch::nn::Module& model,
                                      int64_t step) {
  if (!options_.steps.contains(step)) return false;
  update_parameters(model);
  return true;
}

int64_t AveragedModel::n_averaged() const {
  return n_averaged_.item<int64_t>();
}

uint64_t AveragedModel::num_bytes() const {
  uint64_t num_bytes = 0;
  for (const Average& average : averages_) {
    if (average.is_first) num_bytes += average.tensor.nbytes();
  }
  return num_bytes;
}

absl::Status AveragedModel::CheckNotSwapped() const {
  return is_swapped_ ? absl::FailedPreconditionError(kSwapped)
                     : absl::OkStatus();
}

absl::StatusOr<StateDict> AveragedModel::state_dict() {
  DCP_RETURN_IF_ERROR(CheckNotSwapped());
  StateDict state = {{kCount, n_averaged_}};
  for (const Average& average : averages_) {
    const std::string key = absl::StrCat(kModule, average.name);
    if (average.spec.has_value()) {
      state[key] = DTensor(average.tensor, *average.spec);
    } else {
      state[key] = average.tensor;
    }
  }
  return state;
}

absl::Status AveragedModel::load_state_dict(const StateDict& state) {
  DCP_RETURN_IF_ERROR(CheckNotSwapped());
  Mismatches mismatches;
  std::vector<TensorCopy> copies;
  absl::flat_hash_set<std::string> known;
  const auto plan = [&](const std::string& key, const at::Tensor& dst,
                        const std::optional<DTensorSpec>& spec) {
    known.insert(key);
    const StateValue* src = state.find(key);
    if (src == nullptr) {
      mismatches.missing.push_back(key);
      return;
    }
    copies.push_back({.name = key, .dst = dst, .spec = spec, .src = *src});
    CheckCopy(copies.back(), {.full = true}, mismatches);
    const auto* sharded = src->get_if<DTensor>();
    if (sharded != nullptr && spec.has_value() &&
        sharded->placements() != spec->placements) {
      mismatches.wrong.push_back(absl::StrCat(
          key, " has the placements ", to_string(sharded->placements()),
          ", not the model's, ", to_string(spec->placements),
          "; load it from a checkpoint, or give its full_tensor"));
    }
  };
  plan(kCount, n_averaged_, std::nullopt);
  for (const Average& average : averages_) {
    plan(absl::StrCat(kModule, average.name), average.tensor, average.spec);
  }
  for (const auto& [key, value] : state) {
    if (!known.contains(key)) mismatches.unexpected.push_back(key);
  }
  DCP_RETURN_IF_ERROR(mismatches.ToStatus("AveragedModel state dict"));
  for (const TensorCopy& copy : copies) DCP_RETURN_IF_ERROR(RunCopy(copy));
  return absl::OkStatus();
}

}  // namespace fsdp::optim
