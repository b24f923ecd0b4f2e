// SPDX-License-Identifier: Apache-2.0
// Which parameters a fully_shard call takes, and how it shards them. Cases with
// one rank run in this process.

#include "fsdp/engine/shard_plan.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/engine/fsdp_state.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/mlp_tower.h"
#include "tests/fsdp/module_snapshot.h"
#include "tests/fsdp/tiny_model.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ModulePtr = std::shared_ptr<torch::nn::Module>;

TEST(FullyShardManages, ChunksOnTheGlobalMesh) {
  RunRanks(3, [] {
    init_process_group();
    torch::manual_seed(3);
    Mlp module(1);
    MlpTower tower(1);
    for (const ModulePtr& root :
         std::vector<ModulePtr>{module.ptr(), tower.ptr()}) {
      std::vector<torch::Tensor> whole;
      for (const auto& p : root->parameters()) {
        whole.push_back(p.detach().clone());
      }
      fully_shard(root);
      const auto named = fsdp::named_parameters(*root);
      const auto registered = root->named_parameters();
      ASSERT_EQ(named.size(), whole.size());
      for (size_t i = 0; i < whole.size(); ++i) {
        const DTensor& tensor = named[i].second;
        EXPECT_EQ(named[i].first, registered[i].key());
        EXPECT_EQ(tensor.device_mesh(), MeshOf({3}));
        EXPECT_THAT(tensor.placements(), ElementsAre(Shard(0)));
        EXPECT_EQ(tensor.shape(), whole[i].sizes().vec());
        EXPECT_EQ(tensor.spec().stride, whole[i].strides().vec());
        const auto chunks = whole[i].chunk(3);
        const auto rank = static_cast<size_t>(get_rank());
        const torch::Tensor mine =
            rank < chunks.size() ? chunks[rank] : whole[i].narrow(0, 0, 0);
        EXPECT_TRUE(tensor.to_local().equal(mine)) << named[i].first;
        EXPECT_TRUE(tensor.to_local().is_same(registered[i].value()));
        EXPECT_TRUE(tensor.to_local().is_leaf());
        EXPECT_TRUE(tensor.to_local().requires_grad());
      }
    }
  });
}

TEST(FullyShardManages, TakesParametersThatInnerCallsLeft) {
  OneRank();
  MlpTower tower(3);
  const FSDPModule inner = fully_shard(tower->layers[1]);
  const FSDPModule root = fully_shard(tower);
  EXPECT_THAT(OwnParameters(inner),
              ElementsAre("b.first.weight", "b.first.bias", "b.second.weight",
                          "b.second.bias"));
  EXPECT_THAT(OwnParameters(root),
              ElementsAre("a.first.weight", "a.first.bias", "a.second.weight",
                          "a.second.bias", "c.first.weight", "c.first.bias",
                          "c.second.weight", "c.second.bias", "scale"));
  EXPECT_THAT(NamesOf(fsdp_modules(*tower)), ElementsAre("", "b"));
  EXPECT_TRUE(root.is_root());
  EXPECT_FALSE(inner.is_root());
}

TEST(FullyShardManages, NothingIsLeftForTheRoot) {
  OneRank();
  torch::nn::Sequential model(torch::nn::Linear(4, 4), torch::nn::Linear(4, 4));
  for (const auto& child : model->children()) fully_shard(child);
  const FSDPModule root = fully_shard(model);
  EXPECT_THAT(OwnParameters(root), IsEmpty());
  EXPECT_TRUE(root.is_root());
  EXPECT_THAT(NamesOf(fsdp_modules(*model)), ElementsAre("", "0", "1"));
  EXPECT_EQ(get_fsdp_module(*model), root);
  torch::Tensor x = torch::ones({1, 4});
  model->forward(x).sum().backward();
  EXPECT_EQ(parameters(*model).size(), 4U);
}

TEST(FullyShardManages, TakesAModuleInTwoPlacesOnce) {
  OneRank();
  auto model = std::make_shared<torch::nn::Module>();
  const Mlp mlp(4);
  model->register_module("x", mlp);
  model->register_module("y", mlp);
  const FSDPModule root = fully_shard(ModulePtr(model));
  EXPECT_EQ(OwnParameters(root).size(), 4U);
  const torch::Tensor x = model->named_parameters()["x.first.weight"];
  EXPECT_TRUE(x.is_same(ParameterRegistry(*mlp->first)["weight"]));
  EXPECT_TRUE(dtensor_of(x).has_value());
}

TEST(FullyShardManages, AListIsOneGroup) {
  OneRank();
  MlpTower tower(4);
  const FSDPModule pair = fully_shard(
      std::vector<ModulePtr>{tower->layers[0].ptr(), tower->layers[2].ptr()});
  EXPECT_EQ(get_fsdp_module(*tower->layers[0]), pair);
  EXPECT_EQ(get_fsdp_module(*tower->layers[2]), pair);
  EXPECT_FALSE(find_fsdp_module(*tower->layers[1]).has_value());
  EXPECT_FALSE(find_fsdp_module(*tower).has_value());
  EXPECT_EQ(OwnParameters(pair).size(), 8U);
  EXPECT_FALSE(HasLazyKey(tower->layers[1]->first->weight));
  EXPECT_FALSE(HasLazyKey(tower->scale));
  const FSDPModule root = fully_shard(tower);
  EXPECT_EQ(OwnParameters(root).size(), 9U);
  EXPECT_EQ(pair.name(), "a, c");
  EXPECT_THAT(NamesOf(fsdp_modules(*tower)), ElementsAre("", "a, c"));
}

TEST(FullyShardManages, OnlyOuterModulesInAListCount) {
  OneRank();
  MlpTower tower(2);
  const FSDPModule handle = fully_shard(std::vector<ModulePtr>{
      tower->layers[0]->first.ptr(), tower->layers[0].ptr(),
      tower->layers[1]->second.ptr()});
  EXPECT_EQ(handle.state()->modules().size(), 2U);
  EXPECT_EQ(OwnParameters(handle).size(), 6U);
  EXPECT_EQ(get_fsdp_module(*tower->layers[0]), handle);
  EXPECT_EQ(get_fsdp_module(*tower->layers[1]->second), handle);
  EXPECT_FALSE(find_fsdp_module(*tower->layers[0]->first).has_value());
}

TEST(FullyShardManages, BuffersStayWhole) {
  RunRanks(2, [] {
    init_process_group();
    struct Net : torch::nn::Module {
      Net() { norm = register_module("norm", torch::nn::BatchNorm1d(6)); }
      torch::nn::BatchNorm1d norm{nullptr};
    };
    const auto net = std::make_shared<Net>();
    const torch::Tensor mean = net->norm->running_mean;
    fully_shard(ModulePtr(net));
    for (const auto& item : net->named_buffers()) {
      EXPECT_FALSE(HasLazyKey(item.value())) << item.key();
      EXPECT_FALSE(dtensor_of(item.value()).has_value()) << item.key();
    }
    EXPECT_TRUE(mean.is_same(net->named_buffers()["norm.running_mean"]));
    net->norm(torch::arange(12).view({2, 6}).to(torch::kFloat));
    // 0.1 * (the mean of x and x + 6).
    EXPECT_TRUE(torch::allclose(mean, 0.1 * (torch::arange(6) + 3)));
  });
}

TEST(FullyShardManages, IgnoredParametersStayAsTheyAre) {
  RunRanks(2, [] {
    init_process_group();
    torch::manual_seed(3);
    Mlp model(4);
    const torch::Tensor weight = model->first->weight;
    const torch::Tensor bias = model->first->bias;
    const FSDPModule root =
        fully_shard(model, {.ignored_params = {weight, bias}});
    EXPECT_THAT(OwnParameters(root),
                ElementsAre("second.weight", "second.bias"));
    EXPECT_TRUE(weight.is_same(model->named_parameters()["first.weight"]));
    EXPECT_EQ(weight.sizes(), (std::vector<int64_t>{8, 4}));
    EXPECT_FALSE(dtensor_of(weight).has_value());
    EXPECT_EQ(fsdp::named_parameters(*model).size(), 2U);
    const auto rank = static_cast<double>(get_rank());
    model->forward(torch::full({1, 4}, 1 + rank)).sum().backward();
    // Not reduced: the gradient comes only from this rank's input, which is
    // constant over a row.
    const torch::Tensor want = bias.grad().unsqueeze(1).expand({8, 4});
    EXPECT_TRUE(torch::allclose(weight.grad(), want * (1 + rank)));
    EXPECT_GT(bias.grad().abs().sum().item<double>(), 0);
    EXPECT_EQ(parameters(*model)[0].grad()->shape(),
              (std::vector<int64_t>{4, 8}));
  });
}

TEST(FullyShardTies, InsideOneCallStayTied) {
  OneRank();
  TinyModel model(TinyModelOptions{.tied = true});
  fully_shard(model->blocks[0]);
  const FSDPModule root = fully_shard(model);
  const torch::Tensor shard = ParameterRegistry(*model->tokens)["weight"];
  EXPECT_TRUE(shard.is_same(ParameterRegistry(*model->head)["weight"]));
  EXPECT_TRUE(model->tokens->weight.is_same(model->head->weight));
  EXPECT_FALSE(shard.is_same(model->head->weight));
  int64_t count = 0;
  for (const std::string& name : OwnParameters(root)) {
    count += name == "tokens.weight" || name == "head.weight" ? 1 : 0;
  }
  EXPECT_EQ(count, 1);
}

TEST(FullyShardTies, AcrossCallsAreRefusedByName) {
  OneRank();
  TinyModel model(TinyModelOptions{.tied = true});
  fully_shard(model->tokens);
  fully_shard(model->blocks[0]);
  const torch::Tensor before = ParameterRegistry(*model->norm)["weight"];
  const std::vector<std::string> says = {"'head.weight' (", "in one call"};
  ExpectError<c10::ValueError>([&] { fully_shard(model); }, says);
  ExpectError<c10::ValueError>([&] { fully_shard(model->head); },
                               {"'weight' (", ") is tied to 'weight' ("});
  EXPECT_TRUE(before.is_same(ParameterRegistry(*model->norm)["weight"]));
  EXPECT_FALSE(HasLazyKey(before));
  EXPECT_FALSE(find_fsdp_module(*model).has_value());
  EXPECT_TRUE(get_fsdp_module(*model->blocks[0]).is_root());
  // Modules that are not tied can still be sharded.
  fully_shard(model->norm);
}

TEST(FullyShardTies, AcrossListedModulesAreOneCall) {
  OneRank();
  TinyModel model(TinyModelOptions{.tied = true});
  const FSDPModule ends = fully_shard(
      std::vector<ModulePtr>{model->tokens.ptr(), model->head.ptr()});
  EXPECT_EQ(OwnParameters(ends).size(), 1U);
  fully_shard(model);
  EXPECT_TRUE(ParameterRegistry(*model->tokens)["weight"].is_same(
      ParameterRegistry(*model->head)["weight"]));
  TinyLoss(model, TinyBatch(0)).backward();
  EXPECT_TRUE(ParameterRegistry(*model->head)["weight"].grad().defined());
}

TEST(FullyShardUse, MetaParametersMustBeMaterialised) {
  OneRank();
  Mlp module{nullptr};
  {
    const MetaDeviceGuard guard;
    module = Mlp(4);
  }
  fully_shard(module);
  EXPECT_TRUE(parameters(*module)[0].to_local().is_meta());
  ExpectError<c10::Error>(
      [&] {
        module->forward(torch::ones({1, 4}));
      },
      {"meta device", "first.weight", "second.bias",
       "fsdp::to_empty(module, device)"});
}

TEST(FullyShardUse, TrainableParametersOfOneGroupHaveOneDtype) {
  OneRank();
  Mlp mixed(4);
  mixed->second->to(torch::kDouble);
  fully_shard(mixed);
  ExpectError<c10::Error>(
      [&] {
        mixed->forward(torch::ones({1, 4}));
      },
      {"'first.weight' is Float",
       "'second.weight' is "
       "Double"});
  Mlp frozen(4);
  frozen->second->to(torch::kDouble);
  for (auto& p : frozen->second->parameters()) p.set_requires_grad(false);
  fully_shard(frozen);
  const torch::Tensor h = frozen->first(torch::ones({1, 4}));
  EXPECT_EQ(frozen->second(h.to(torch::kDouble)).scalar_type(), torch::kDouble);
}

TEST(FullyShardUse, AChildMayRunBeforeItsRootIsSharded) {
  RunRanks(2, [] {
    init_process_group();
    torch::manual_seed(3);
    MlpTower reference(2);
    torch::manual_seed(3);
    MlpTower tower(2);
    const torch::Tensor x = torch::linspace(-1, 1, 8).view({2, 4});
    const FSDPModule child = fully_shard(tower->layers[0]);
    EXPECT_TRUE(child.is_root());
    EXPECT_EQ(child.name(), "");
    EXPECT_TRUE(torch::allclose(tower->layers[0](x), reference->layers[0](x)));
    const FSDPModule root = fully_shard(tower);
    EXPECT_FALSE(child.is_root());
    EXPECT_EQ(child.name(), "a");
    EXPECT_FALSE(child.is_unsharded());
    tower->forward(x).sum().backward();
    reference->forward(x).sum().backward();
    const auto want = reference->named_parameters();
    for (const auto& [name, parameter] : fsdp::named_parameters(*tower)) {
      EXPECT_TRUE(
          torch::allclose(parameter.grad()->full_tensor(), want[name].grad()))
          << name;
    }
  });
}

TEST(FullyShardUse, AListMayBeTheRoot) {
  RunRanks(2, [] {
    init_process_group();
    torch::manual_seed(3);
    const Mlp a(4), b(4);
    const torch::Tensor x = torch::linspace(-1, 1, 8).view({2, 4});
    Mlp first = a, second = b;
    const torch::Tensor want = second(first(x)).detach();
    const FSDPModule root =
        fully_shard(std::vector<ModulePtr>{a.ptr(), b.ptr()});
    EXPECT_TRUE(root.is_root());
    const torch::Tensor got = second(first(x));
    EXPECT_TRUE(torch::allclose(got, want));
    got.sum().backward();
    EXPECT_TRUE(parameters(*a)[0].grad().has_value());
    EXPECT_TRUE(parameters(*b)[3].grad().has_value());
  });
}

}  // namespace
}  // namespace fsdp::testing
