#include "tests/fsdp/gpu/small_training.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/randint.h"
#include "c10/util/Exception.h"
#include "fsdp/engine/collectives.h"
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
  const DeviceMesh mesh = init_device_mesh(device.name(), {1, 1}, {"dp", "tp"});
  if (!options.plan.empty()) {
    model->to(device.device());
    Parallelize(*model, mesh["tp"], options.plan);
  }
  if (!options.sharded) return model;
  FullyShardOptions sharding = options.sharding;
  sharding.mesh = mesh["dp"];
  std::vector<FSDPModule> modules;
  for (const std::shared_ptr<torch::nn::Module>& layer : *model->layers) {
    modules.push_back(fully_shard(layer, sharding));
  }
  modules.push_back(fully_shard(model, sharding));
  if (options.communicates) {
    for (const FSDPModule& module : modules) MakeItCommunicate(module);
  }
  return model;
}

}  // namespace

SmallTraining::SmallTraining(const CheckDevice& device,
                             const SmallTrainingOptions& options)
    : device_(device),
      batch_(options.batch),
      length_(options.length),
      model_(MakeModel(device, options)) {
  optimizer_ = std::make_unique<FusedAdamW>(model_->parameters(),
                                            FusedAdamWOptions(1e-3));
}

at::Tensor SmallTraining::Step() {
  torch::manual_seed(100 + num_steps_++);
  const at::Tensor rows = at::randint(model_->options().vocab_size,
                                      {batch_, length_ + 1}, at::kLong)
                              .to(device_.device());
  optimizer_->zero_grad();
  const at::Tensor logits = model_(rows.narrow(1, 0, length_));
  const at::Tensor loss =
      at::cross_entropy_loss(logits.flatten(0, 1).to(at::kFloat),
                             rows.narrow(1, 1, length_).flatten());
  loss.backward();
  optimizer_->step();
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
