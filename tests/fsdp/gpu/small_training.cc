// SPDX-License-Identifier: Apache-2.0

#include "tests/fsdp/gpu/small_training.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/randint.h"
#include "c10/util/Exception.h"
#include "fsdp/engine/comm/collectives.h"
#include "fsdp/fsdp_module.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/optim/fused_adamw.h"
#include "fsdp/parallel/activation.h"
#include "tests/fsdp/parity/parallel.h"
#include "torch/utils.h"

namespace fsdp::testing {
namespace {

void MakeItCommunicate(FSDPModule module) {
  module.set_custom_all_gather(
      [](at::Tensor output, at::Tensor input, c10d::ProcessGroup& group) {
        if (const Work work = AllGatherInto(output, input, group)) work->wait();
      });
  module.set_custom_reduce_scatter(
      [](at::Tensor output, at::Tensor input, c10d::ProcessGroup& group) {
        const Work work =
            ReduceScatterInto(output, input, c10d::ReduceOp::SUM, group);
        if (work) work->wait();
      });
}

// Made on the CPU, so that they are the same on every device.
llama::Llama MakeModel(const CheckDevice& device,
                       const SmallTrainingOptions& options) {
  torch::manual_seed(1);
  llama::Llama model(options.sizes);
  llama::InitWeights(model, options.sizes);
  if (!options.sharded && options.plan.empty()) {
    model->to(device.device());
    return model;
  }
  FullyShardOptions sharding = options.sharding;
  const bool one_rank = !sharding.mesh.has_value();
  if (one_rank) {
    const DeviceMesh mesh =
        init_device_mesh(device.name(), {1, 1}, {"dp", "tp"});
    if (!options.plan.empty()) {
      model->to(device.device());
      Parallelize(*model, mesh["tp"], options.plan);
    }
    if (!options.sharded) return model;
    sharding.mesh = mesh["dp"];
  }
  std::vector<FSDPModule> modules;
  for (const std::shared_ptr<torch::nn::Module>& layer : *model->layers) {
    modules.push_back(fully_shard(layer, sharding));
  }
  modules.push_back(fully_shard(model, sharding));
  if (one_rank && options.communicates) {
    for (const FSDPModule& module : modules) MakeItCommunicate(module);
  }
  return model;
}

}  // namespace

SmallTraining::SmallTraining(const CheckDevice& device,
                             const SmallTrainingOptions& options)
    : device_(device), options_(options), model_(MakeModel(device, options)) {
  optimizer_ = std::make_unique<FusedAdamW>(model_->parameters(),
                                            FusedAdamWOptions(1e-3));
}

at::Tensor SmallTraining::Step() {
  torch::manual_seed(100 + num_steps_++);
  at::Tensor rows =
      at::randint(model_->options().vocab_size,
                  {options_.batch, options_.length + 1}, at::kLong)
          .to(device_.device());
  if (options_.sharding.mesh.has_value()) {
    const int64_t num_parts = options_.sharding.mesh->size();
    rows = rows.chunk(num_parts)[static_cast<size_t>(get_rank())];
  }
  optimizer_->zero_grad();
  const std::vector<at::Tensor> microbatches =
      rows.chunk(options_.num_microbatches);
  at::Tensor loss;
  for (size_t i = 0; i < microbatches.size(); ++i) {
    const at::Tensor part =
        Microbatch(microbatches[i], i + 1 == microbatches.size());
    loss = loss.defined() ? loss + part : part;
  }
  optimizer_->step();
  return loss;
}

// Forward and backward. Returns this microbatch's share of the loss.
at::Tensor SmallTraining::Microbatch(const at::Tensor& rows, bool is_last) {
  for (FSDPModule& module : fsdp_modules(*model_)) {
    module.set_requires_all_reduce(is_last, /*recurse=*/false);
  }
  const at::Tensor logits = model_(rows.narrow(1, 0, options_.length));
  const at::Tensor loss =
      at::cross_entropy_loss(logits.flatten(0, 1).to(at::kFloat),
                             rows.narrow(1, 1, options_.length).flatten()) /
      options_.num_microbatches;
  loss.backward();
  return full_tensor(loss.detach());
}

std::vector<double> SmallTraining::Train(int64_t num_steps) {
  std::vector<double> losses;
  for (int64_t i = 0; i < num_steps; ++i) {
    losses.push_back(Step().item<double>());
  }
  return losses;
}

double LargestDifference(const std::vector<double>& found,
                         const std::vector<double>& expected) {
  TORCH_CHECK(found.size() == expected.size(), found.size(), " losses and ",
              expected.size(), " to compare them with");
  double largest = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double difference =
        std::abs(found[i] - expected[i]) / std::abs(expected[i]);
    if (!std::isfinite(difference)) {
      return std::numeric_limits<double>::infinity();
    }
    largest = std::max(largest, difference);
  }
  return largest;
}

}  // namespace fsdp::testing
