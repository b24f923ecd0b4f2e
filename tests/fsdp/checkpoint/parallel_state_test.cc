// SPDX-License-Identifier: Apache-2.0
// Modules that fully_shard has sharded, one of them over tensor parallelism:
// each loads any other's checkpoint.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state_dict.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "gtest/gtest.h"
#include "tests/fsdp/parallel_mlp.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "torch/optim/adamw.h"

namespace fsdp {
namespace {

using ::fsdp::testing::kMlpDim;
using ::fsdp::testing::Mlp;
using ::fsdp::testing::RunRanks;
using ::fsdp::testing::SharedDir;

// Not divisible into rows by the number of ranks.
constexpr int64_t kHidden = 6;

struct Training {
  std::string name;
  Mlp module;
  std::unique_ptr<torch::optim::AdamW> optimizer;
};

Training ShardedTraining(const std::string& name, const Mlp& module,
                         const FullyShardOptions& options) {
  fully_shard(module, options);
  return {.name = name,
          .module = module,
          .optimizer = std::make_unique<torch::optim::AdamW>(
              module->parameters(), torch::optim::AdamWOptions(0.1))};
}

// The same weights, from `seed`, on 4 ranks in every way; no optimizer has
// stepped yet.
std::vector<Training> EveryWay(int64_t seed) {
  torch::manual_seed(static_cast<uint64_t>(seed));
  const Mlp whole(kHidden, nullptr);
  const auto copy = [&] {
    const torch::NoGradGuard no_grad;
    Mlp module(kHidden, nullptr);
    const auto values = whole->named_parameters();
    for (const auto& item : module->named_parameters()) {
      item.value().copy_(values[item.key()]);
    }
    return module;
  };
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  std::vector<Training> all;
  all.push_back(ShardedTraining(
      "fsdp over tp", fsdp::testing::Parallelize(whole, mesh["tp"]),
      fsdp::testing::ParallelOptions(whole, mesh["dp"], mesh["tp"])));
  all.push_back(ShardedTraining(
      "1-D", copy(), {.mesh = init_device_mesh("cpu", {4}, {"shard"})}));
  all.push_back(ShardedTraining(
      "HSDP", copy(),
      {.mesh = init_device_mesh("cpu", {2, 2}, {"replicate", "shard"})}));
  return all;
}

void Train(Training& training) {
  for (int64_t step = 0; step < 2; ++step) {
    torch::manual_seed(static_cast<uint64_t>(step));
    training.optimizer->zero_grad();
    // The values are equal on all ranks, so it does not matter which ranks
    // share one.
    training.module->forward(torch::randn({6, kMlpDim}))
        .square()
        .mean()
        .backward();
    training.optimizer->step();
  }
}

StateDict GetState(Training& training, const StateDictOptions& options) {
  auto state = get_state_dict(*training.module, *training.optimizer, options);
  EXPECT_OK(state);
  return {{"model", state->first}, {"optim", state->second}};
}

// All tensors, whole, by name.
void ForEachTensor(
    const std::string& prefix, const StateDict& state,
    const std::function<void(const std::string&, const at::Tensor&)>& call) {
  for (const auto& [key, value] : state) {
    if (const auto* dict = value.get_if<StateDict>()) {
      ForEachTensor(absl::StrCat(prefix, key, "."), *dict, call);
    }
    if (const auto* tensor = value.get_if<at::Tensor>()) {
      call(prefix + key, *tensor);
    }
  }
}

void ExpectSame(Training& from, Training& to) {
  const StateDictOptions full{.full_state_dict = true};
  const StateDict expected = GetState(from, full);
  std::vector<at::Tensor> values;
  ForEachTensor("", expected, [&](const std::string&, const at::Tensor& value) {
    values.push_back(value);
  });
  size_t next = 0;
  ForEachTensor("", GetState(to, full),
                [&](const std::string& name, const at::Tensor& value) {
                  ASSERT_LT(next, values.size());
                  EXPECT_TRUE(value.equal(values[next++]))
                      << name << " of " << from.name << " in " << to.name;
                });
  // Weights, and step, exp_avg, exp_avg_sq for each.
  EXPECT_EQ(next, 4 * 4);
}

TEST(ParallelState, EachLoadsEveryOthersCheckpoint) {
  RunRanks(4, [] {
    init_process_group();
    std::vector<Training> savers = EveryWay(1);
    for (Training& saver : savers) {
      Train(saver);
      ASSERT_OK(save(GetState(saver, {}), SharedDir() + "/" + saver.name));
    }
    for (Training& saver : savers) {
      for (Training& loader : EveryWay(2)) {
        StateDict state = GetState(loader, {});
        ASSERT_OK(load(state, SharedDir() + "/" + saver.name));
        ASSERT_OK(set_state_dict(*loader.module, *loader.optimizer,
                                 *state["model"].get_if<StateDict>(),
                                 *state["optim"].get_if<StateDict>()));
        ExpectSame(saver, loader);
      }
    }
  });
}

}  // namespace
}  // namespace fsdp
