// SPDX-License-Identifier: Apache-2.0

#include "tests/fsdp/sim/training.h"

#include <cstdlib>
#include <memory>
#include <random>
#include <utility>

#include "ATen/Parallel.h"
#include "absl/strings/str_cat.h"
#include "fsdp/engine/fsdp_state.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/module/activation_checkpoint.h"
#include "fsdp/optim/clip_grad_norm.h"
#include "fsdp/optim/fused_adamw.h"
#include "fsdp/optim/lbfgs.h"
#include "fsdp/optim/sharded_grad_scaler.h"
#include "fsdp/replicate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sim_device/sim_device.h"
#include "torch/optim/adamw.h"
#include "torch/optim/lbfgs.h"
#include "torch/utils.h"

namespace fsdp::testing {
namespace {

constexpr int kSteps = 5;
// Steps that may allocate memory for later steps.
constexpr int kFirstSteps = 2;
constexpr int64_t kBlocks = 3;
// So large that Adam does not turn tiny gradients' rounding errors into steps.
constexpr double kEps = 1e-2;

using HostWaits = std::map<std::string, int64_t>;

struct Outcome {
  std::vector<double> losses;
  std::map<std::string, torch::Tensor> parameters;
  // For each step, on the simulated device.
  std::vector<HostWaits> host_waits;
  std::vector<int64_t> peaks;
};

DeviceMesh MeshFor(const Recipe& recipe, const std::string& device) {
  const int64_t world = get_world_size();
  return recipe.num_replicas == 1
             ? init_device_mesh(device, {world})
             : init_device_mesh(
                   device, {recipe.num_replicas, world / recipe.num_replicas},
                   {"replicate", "shard"});
}

void NameStreams(const CommContext& comm) {
  if (!comm.has_streams()) return;
  sim::NameStream(comm.copy_in(), "copy-in");
  sim::NameStream(comm.all_gather(), "all-gather");
  sim::NameStream(comm.reduce_scatter(), "reduce-scatter");
  sim::NameStream(comm.all_reduce(), "all-reduce");
}

Training Shard(const Recipe& recipe, const std::string& device) {
  torch::manual_seed(7);
  Net net;
  if (recipe.change) recipe.change(net);
  FullyShardOptions options = recipe.options;
  options.mesh = MeshFor(recipe, device);
  if (options.offload_policy.has_value()) {
    options.offload_policy->pin_memory = device == "cuda";
  }
  std::vector<FSDPModule> blocks;
  const auto apply = [&](const std::shared_ptr<torch::nn::Module>& module) {
    if (!recipe.replicates) return fully_shard(module, options);
    return replicate(module, {.mesh = options.mesh,
                              .mp_policy = options.mp_policy,
                              .offload_policy = options.offload_policy});
  };
  for (torch::nn::Sequential& block : net->blocks) {
    blocks.push_back(apply(block.ptr()));
  }
  const FSDPModule root = apply(net.ptr());
  NameStreams(root.state()->scheduler().comm());
  Training training{.net = net,
                    .root = root,
                    .blocks = blocks,
                    .device = options.mesh->device()};
  if (recipe.prepare) recipe.prepare(training);
  return training;
}

// All microbatches' inputs, on the device before training: a copy from the host
// waits for the device, and would hide missing waits.
std::vector<torch::Tensor> Inputs(const Recipe& recipe,
                                  const torch::Device& device) {
  std::vector<torch::Tensor> inputs;
  for (int64_t i = 0; i < kSteps * recipe.num_microbatches; ++i) {
    torch::manual_seed(static_cast<uint64_t>(100 * i + get_rank()));
    inputs.push_back(torch::randn({16, NetImpl::kIn},
                                  recipe.is_double ? at::kDouble : at::kFloat)
                         .to(device));
  }
  return inputs;
}

std::unique_ptr<torch::optim::Optimizer> MakeOptimizer(const Recipe& recipe,
                                                       const Net& net) {
  if (recipe.optimizer == Optimizer::kFusedAdamW) {
    return std::make_unique<FusedAdamW>(net->parameters(),
                                        FusedAdamWOptions(1e-2).eps(kEps));
  }
  return std::make_unique<torch::optim::AdamW>(
      net->parameters(), torch::optim::AdamWOptions(1e-2).eps(kEps));
}

class Trainer {
 public:
  Trainer(const Recipe& recipe, const std::string& device)
      : recipe_(recipe),
        training_(Shard(recipe, device)),
        inputs_(Inputs(recipe, training_.device)) {
    if (recipe.optimizer == Optimizer::kLbfgs) {
      lbfgs_.emplace(parameters(*training_.net),
                     torch::optim::LBFGSOptions(0.1).max_iter(4));
    } else {
      optimizer_ = MakeOptimizer(recipe, training_.net);
    }
    if (recipe.scales) scaler_.emplace(GradScalerOptions{.init_scale = 1024});
  }

  Outcome Run() {
    Outcome outcome;
    // One tensor for all, so that no step has more memory than another.
    const torch::Tensor losses = torch::zeros({kSteps}, training_.device);
    for (int step = 0; step < kSteps; ++step) {
      if (training_.is_on_device()) {
        sim::TakeHostWaits();
        sim::ResetPeakMemory(training_.device.index());
      }
      losses[step].copy_(Step());
      ++training_.step;
      if (!training_.is_on_device()) continue;
      outcome.host_waits.push_back(sim::TakeHostWaits());
      outcome.peaks.push_back(sim::memory_stats(training_.device.index()).peak);
    }
    for (int step = 0; step < kSteps; ++step) {
      outcome.losses.push_back(losses[step].item<double>());
    }
    for (const auto& [name, parameter] : named_parameters(*training_.net)) {
      outcome.parameters[name] =
          parameter.full_tensor().detach().to(at::kCPU).clone();
    }
    return outcome;
  }

 private:
  torch::Tensor Step() {
    if (recipe_.before_step) recipe_.before_step(training_);
    if (lbfgs_.has_value()) {
      return lbfgs_->step([this] {
        lbfgs_->zero_grad();
        return Backward();
      });
    }
    optimizer_->zero_grad();
    torch::Tensor loss = Backward();
    if (scaler_.has_value()) {
      if (recipe_.clips) scaler_->unscale_(*optimizer_);
    }
    if (recipe_.clips) clip_grad_norm_(training_.net->parameters(), 0.5);
    if (recipe_.before_optimizer) recipe_.before_optimizer(training_);
    if (scaler_.has_value()) {
      scaler_->step(*optimizer_);
      scaler_->update();
    } else {
      optimizer_->step();
    }
    return loss;
  }

  // For all microbatches; returns the sum of the losses.
  torch::Tensor Backward() {
    torch::Tensor sum = torch::zeros({}, training_.device);
    for (int64_t i = 0; i < recipe_.num_microbatches; ++i) {
      const bool is_last = i + 1 == recipe_.num_microbatches;
      training_.microbatch = i;
      if (recipe_.postponed == Postponed::kReduction) {
        training_.root.set_requires_gradient_sync(is_last);
      } else if (recipe_.postponed == Postponed::kAllReduce) {
        training_.root.set_requires_all_reduce(is_last);
      }
      const torch::Tensor& x =
          inputs_[training_.step * recipe_.num_microbatches + i];
      const torch::Tensor loss = Loss(x);
      (scaler_.has_value() ? scaler_->scale(loss) : loss).backward();
      sum += loss.detach();
    }
    return sum;
  }

  torch::Tensor Loss(const torch::Tensor& x) {
    const torch::Tensor y = recipe_.forward ? recipe_.forward(training_, x)
                                            : training_.net->forward(x);
    return (y.to(x.scalar_type()) - x.narrow(1, 0, 4)).pow(2).mean();
  }

  const Recipe& recipe_;
  Training training_;
  const std::vector<torch::Tensor> inputs_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::optional<LBFGS> lbfgs_;
  std::optional<ShardedGradScaler> scaler_;
};

double Tolerance(const Recipe& recipe) {
  const bool is_low = recipe.options.mp_policy.param_dtype.has_value();
  return recipe.tolerance.value_or(is_low ? 2e-2 : 1e-5);
}

double LargestDifference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace

NetImpl::NetImpl() {
  stem = register_module("stem", torch::nn::Linear(kIn, kDim));
  for (int64_t i = 0; i < kBlocks; ++i) {
    blocks.push_back(register_module(
        absl::StrCat("block", i),
        torch::nn::Sequential(
            torch::nn::LayerNorm(torch::nn::LayerNormOptions({kDim})),
            torch::nn::Linear(kDim, 2 * kDim), torch::nn::GELU(),
            torch::nn::Linear(2 * kDim, kDim))));
  }
  head = register_module("head", torch::nn::Linear(kDim, 4));
}

void NetImpl::AddAdapters() {
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (torch::Tensor& parameter : blocks[i]->parameters()) {
      parameter.set_requires_grad(false);
    }
    const auto low_rank = [](int64_t in, int64_t out) {
      return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false));
    };
    adapters.push_back(register_module(
        absl::StrCat("adapter", i),
        torch::nn::Sequential(low_rank(kDim, 4), low_rank(4, kDim))));
  }
}

void NetImpl::AddStemTwin() {
  twin = register_module("twin", torch::nn::Linear(kIn, kDim));
  twin->weight = stem->weight;
  ParameterRegistry(*twin)["weight"] = stem->weight;
}

torch::Tensor NetImpl::forward(const torch::Tensor& x) {
  torch::Tensor h = stem(x);
  if (!twin.is_empty()) h = h + twin(x);
  return Head(Body(h));
}

torch::Tensor NetImpl::Body(torch::Tensor h) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto run = [this, i](const torch::Tensor& x) {
      const torch::Tensor y = x + blocks[i]->forward(x);
      return adapters.empty() ? y : y + adapters[i]->forward(x);
    };
    h = checkpoints ? fsdp::checkpoint(run, h) : run(h);
  }
  return h;
}

void ExpectTrainsAsOnTheCpu(const Recipe& recipe) {
  at::set_num_threads(1);
  // Without SIM_SEED, delays differ each time; a failure prints the seed.
  sim::Options& options = sim::options();
  if (std::getenv("SIM_SEED") == nullptr) {
    options.seed = std::random_device()();
  }
  SCOPED_TRACE(absl::StrCat("SIM_SEED=", options.seed));
  options.max_delay_us = 200;
  options.collective_us = 300;
  init_process_group();
  const Outcome want = Trainer(recipe, "cpu").Run();
  sim::TakeRaces();
  const Outcome got = Trainer(recipe, "cuda").Run();
  const double tolerance = Tolerance(recipe);
  for (size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], want.losses[i], tolerance) << "step " << i;
  }
  for (const auto& [name, value] : want.parameters) {
    EXPECT_LE(LargestDifference(got.parameters.at(name), value), tolerance)
        << name;
  }
  EXPECT_THAT(sim::TakeRaces(), ::testing::IsEmpty());
  EXPECT_THAT(sim::TakeEagerOperators(), ::testing::IsEmpty());
  for (int step = kFirstSteps; step < kSteps; ++step) {
    if (recipe.host_waits.has_value()) {
      EXPECT_THAT(got.host_waits[step],
                  ::testing::ContainerEq(*recipe.host_waits))
          << "step " << step;
    }
    if (recipe.has_even_memory) {
      EXPECT_EQ(got.peaks[step], got.peaks[kFirstSteps]) << "step " << step;
    }
  }
}

}  // namespace fsdp::testing
