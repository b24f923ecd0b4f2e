// SPDX-License-Identifier: Apache-2.0
// Loads into a module that has run: a forward that records no gradient leaves
// the root's parameters gathered, and the next one computes with the loaded
// values.
#include <functional>
#include <string>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "absl/strings/str_cat.h"
#include "fsdp/checkpoint/checkpoint_manager.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state_dict.h"
#include "fsdp/forward.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/replicate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "torch/nn/modules/container/sequential.h"
#include "torch/nn/modules/linear.h"
#include "torch/optim/sgd.h"

namespace fsdp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::fsdp::testing::RunRanks;
using ::fsdp::testing::SharedDir;
using ::testing::Optional;
using torch::nn::Linear;
using torch::nn::Sequential;

// Large shards, which a replica receives where they are.
constexpr int64_t kSize = 1024;

struct Way {
  std::string name;
  int num_ranks;
  std::function<void(Sequential&)> shard;
};

std::vector<Way> Ways() {
  return {{"one rank", 1, [](Sequential& model) { fully_shard(model); }},
          {"the root", 2, [](Sequential& model) { fully_shard(model); }},
          {"each layer, freed at once", 2,
           [](Sequential& model) {
             for (const auto& layer : *model) fully_shard(layer.ptr());
             fully_shard(model, {.reshard_after_forward = true});
           }},
          {"shards in the CPU's memory", 2,
           [](Sequential& model) {
             fully_shard(model, {.offload_policy =
                                     CPUOffloadPolicy{.pin_memory = false}});
           }},
          {"copies", 2, [](Sequential& model) { replicate(model); }},
          {"replicas", 4, [](Sequential& model) {
             fully_shard(model, {.mesh = init_device_mesh(
                                     "cpu", {2, 2}, {"replicate", "shard"})});
           }}};
}

StateDict StateAt(const Sequential& model) {
  return {{"model", *get_model_state_dict(*model)}};
}

std::string StepAt(int64_t step) {
  return absl::StrCat(SharedDir(), "/step-", step);
}

// Step i has i in every parameter.
void SaveThreeSteps(const Sequential& model) {
  const at::NoGradGuard no_grad;
  for (const int64_t step : {1, 2, 3}) {
    for (at::Tensor& shard : model->parameters()) {
      shard.fill_(static_cast<double>(step));
    }
    ASSERT_OK(save(StateAt(model), StepAt(step)));
  }
}

double Output(Sequential& model) {
  const at::NoGradGuard no_grad;
  return model->forward(at::ones({1, kSize}))[0][0].item<double>();
}

// The output for an input of ones, through layers of sizes kSize and 2, with
// `value` in every parameter.
double ExpectedOutput(double value) {
  const double hidden = value * (kSize + 1);
  return value * (2 * hidden + 1);
}

TEST(LoadAfterForward, IsSeenByTheNextForward) {
  for (const Way& way : Ways()) {
    SCOPED_TRACE(way.name);
    RunRanks(way.num_ranks, [&] {
      init_process_group();
      Sequential model(Linear(kSize, 2), Linear(2, 1));
      way.shard(model);
      SaveThreeSteps(model);
      EXPECT_EQ(Output(model), ExpectedOutput(3));
      StateDict target = StateAt(model);
      for (const bool broadcast : {false, true}) {
        const TorchLoadOptions options{.broadcast_to_replicas = broadcast};
        ASSERT_OK(load(target, StepAt(1), options));
        EXPECT_EQ(Output(model), ExpectedOutput(1)) << broadcast;
        ASSERT_OK(load_from_rank0(target, StepAt(2), options));
        EXPECT_EQ(Output(model), ExpectedOutput(2)) << broadcast;
      }
      CheckpointManager manager(SharedDir(), {.log = [](auto&) {}});
      EXPECT_THAT(manager.resume(target), IsOkAndHolds(Optional(3)));
      EXPECT_EQ(fsdp::forward(model, at::ones({1, kSize})).item<double>(),
                ExpectedOutput(3));
    });
  }
}

TEST(LoadAfterForward, WholeTensorsForTheModelAreSeenToo) {
  RunRanks(2, [] {
    init_process_group();
    Sequential model(Linear(kSize, 2), Linear(2, 1));
    fully_shard(model);
    Output(model);
    for (const bool from_rank0 : {false, true}) {
      const double value = from_rank0 ? 2 : 1;
      StateDict whole;
      for (const auto& [name, parameter] : named_parameters(*model)) {
        if (from_rank0 && get_rank() != 0) continue;
        whole[name] = at::full(parameter.shape(), value);
      }
      ASSERT_OK(set_model_state_dict(*model, whole,
                                     {.full_state_dict = true,
                                      .broadcast_from_rank0 = from_rank0})
                    .status());
      EXPECT_EQ(Output(model), ExpectedOutput(value));
    }
  });
}

// Shards continue what shards saved, or copies, and copies what shards saved.
void ExpectGoesOn(bool saves_copies, bool loads_copies) {
  RunRanks(2, [=] {
    init_process_group();
    const auto make = [=](uint64_t seed) {
      torch::manual_seed(seed);
      Sequential model(Linear(4, 8), Linear(8, 2));
      if (seed == 1 ? saves_copies : loads_copies) {
        replicate(model);
      } else {
        fully_shard(model);
      }
      return model;
    };
    const auto train = [](Sequential& model) {
      torch::optim::SGD optimizer(model->parameters(), 0.1);
      std::vector<double> losses;
      for (int64_t step = 1; step <= 3; ++step) {
        const at::Tensor x = at::full({2, 4}, static_cast<double>(step)).sin();
        optimizer.zero_grad();
        const at::Tensor loss = model->forward(x).square().mean();
        loss.backward();
        optimizer.step();
        losses.push_back(loss.item<double>());
      }
      return losses;
    };
    Sequential saved = make(1);
    ASSERT_OK(save(StateAt(saved), StepAt(1)));
    Sequential loaded = make(2);
    {
      const at::NoGradGuard no_grad;
      loaded->forward(at::ones({1, 4}));
    }
    StateDict target = StateAt(loaded);
    ASSERT_OK(load(target, StepAt(1)));
    EXPECT_EQ(train(loaded), train(saved));
  });
}

TEST(LoadAfterForward, TrainingGoesOnAsIfItHadNotRun) {
  for (const bool saves_copies : {false, true}) {
    for (const bool loads_copies : {false, true}) {
      ExpectGoesOn(saves_copies, loads_copies);
    }
  }
}

}  // namespace
}  // namespace fsdp
