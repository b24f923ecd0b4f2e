// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/module_entries.h"

#include <string>
#include <vector>

#include "fsdp/fully_shard.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/module/activation_checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"

namespace fsdp {
namespace {

using fsdp::testing::RunRanks;
using ::testing::ElementsAre;

torch::nn::Sequential Model() {
  torch::nn::Linear shared(torch::nn::LinearOptions(2, 2).bias(false));
  return torch::nn::Sequential(shared, torch::nn::BatchNorm1d(2), shared);
}

std::vector<std::string> EntryNames(const torch::nn::Module& module) {
  std::vector<std::string> names;
  for (const ModuleEntry& entry : ListEntries(module))
    names.push_back(entry.name);
  return names;
}

const auto kNames =
    ElementsAre("0.weight", "1.weight", "1.bias", "1.running_mean",
                "1.running_var", "1.num_batches_tracked", "2.weight");

TEST(ModuleEntries, ListsEveryNameInPythonsOrder) {
  const torch::nn::Sequential model = Model();
  EXPECT_THAT(EntryNames(*model), kNames);
  const std::vector<ModuleEntry> entries = ListEntries(*model);
  EXPECT_TRUE(entries[0].tensor.is_same(entries[6].tensor));
  EXPECT_TRUE(entries[2].is_parameter);
  EXPECT_FALSE(entries[3].is_parameter);
  EXPECT_FALSE(IsSharded(*model));
  EXPECT_EQ(FindSpec(entries[0].tensor), std::nullopt);
}

TEST(ModuleEntries, HidesActivationCheckpointing) {
  torch::nn::Sequential model = Model();
  apply_activation_checkpointing(*model, [](const auto&) { return true; });
  EXPECT_THAT(EntryNames(*model), kNames);
}

TEST(ModuleEntries, FindsPrefixesOfInnerModules) {
  torch::nn::Sequential model = Model();
  EXPECT_THAT(*FindModulePrefixes(*model, {model.get()}), ElementsAre(""));
  EXPECT_THAT(*FindModulePrefixes(*model, {model[2].get(), model[1].get()}),
              ElementsAre("0.", "1."));
  const torch::nn::Linear stranger(1, 1);
  EXPECT_EQ(FindModulePrefixes(*model, {model[1].get(), stranger.get()}),
            std::nullopt);
}

TEST(ModuleEntries, ListsShardsOfAShardedModule) {
  RunRanks(2, [] {
    init_process_group();
    torch::nn::Sequential model = Model();
    FullyShardOptions options;
    options.reshard_after_forward = false;
    const FSDPModule handle = fully_shard(model, options);
    EXPECT_THAT(EntryNames(*model), kNames);
    EXPECT_TRUE(IsSharded(*model));
    const std::vector<ModuleEntry> entries = ListEntries(*model);
    ASSERT_TRUE(FindSpec(entries[0].tensor).has_value());
    EXPECT_THAT(FindSpec(entries[0].tensor)->shape, ElementsAre(2, 2));
    EXPECT_EQ(FindSpec(entries[3].tensor), std::nullopt);
    model->forward(torch::ones({4, 2}));
    EXPECT_TRUE(handle.is_unsharded());
    DropGathered(*model);
    EXPECT_FALSE(handle.is_unsharded());
  });
}

}  // namespace
}  // namespace fsdp
