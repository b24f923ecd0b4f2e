// SPDX-License-Identifier: Apache-2.0

#include "fsdp/module/wrap.h"

#include <memory>
#include <string>
#include <vector>

#include "fsdp/engine/module_access.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "torch/nn/modules/activation.h"
#include "torch/nn/modules/container/moduledict.h"
#include "torch/nn/modules/container/modulelist.h"
#include "torch/nn/modules/container/sequential.h"
#include "torch/nn/modules/embedding.h"
#include "torch/nn/modules/linear.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::nn::Linear;

struct WrappedBlockImpl : torch::nn::Module {
  WrappedBlockImpl() {
    register_module("up", up);
    register_module("act", act);
    register_module("down", down);
  }
  at::Tensor forward(at::Tensor x) { return down(act(up(x))); }
  Linear up{4, 8}, down{8, 4};
  torch::nn::ReLU act;
};
TORCH_MODULE(WrappedBlock);

struct WrappedModelImpl : torch::nn::Module {
  WrappedModelImpl() {
    register_module("embed", embed);
    register_module("blocks", blocks);
    for (int i = 0; i < 2; ++i) blocks->push_back(WrappedBlock());
    register_module("head", head);
  }
  at::Tensor forward(at::Tensor x) {
    x = embed(x);
    for (const auto& block : *blocks)
      x = block->as<WrappedBlockImpl>()->forward(x);
    return head(x);
  }
  // The member and the registered parameter, so that both are the same.
  void TieHead() {
    ParameterRegistry(*head)["weight"] = embed->weight;
    head->weight = embed->weight;
  }
  torch::nn::Embedding embed{6, 4};
  torch::nn::ModuleList blocks;
  Linear head{torch::nn::LinearOptions(4, 6).bias(false)};
};
TORCH_MODULE(WrappedModel);

const auto kAll = AlwaysWrapPolicy();

TEST(Wrap, ByClass) {
  WrappedModel model;
  EXPECT_THAT(modules_to_wrap(*model, ModuleWrapPolicy::of<WrappedBlockImpl>()),
              ElementsAre("blocks.0", "blocks.1", ""));
  EXPECT_THAT(
      modules_to_wrap(
          *model,
          (ModuleWrapPolicy::of<WrappedBlockImpl, torch::nn::EmbeddingImpl>())),
      ElementsAre("embed", "blocks.0", "blocks.1", ""));
}

TEST(Wrap, ByTypeName) {
  WrappedModel model;
  EXPECT_THAT(
      modules_to_wrap(*model, ModuleWrapPolicy({"WrappedBlockImpl",
                                                "torch::nn::EmbeddingImpl"})),
      ElementsAre("embed", "blocks.0", "blocks.1", ""));
  EXPECT_THAT([&] { modules_to_wrap(*model, ModuleWrapPolicy({"lockImpl"})); },
              ThrowsMessage<c10::ValueError>(HasSubstr("'lockImpl'")));
}

TEST(Wrap, ByPredicate) {
  WrappedModel model;
  EXPECT_THAT(
      modules_to_wrap(*model, LambdaWrapPolicy{[](const std::string& name,
                                                  const torch::nn::Module&) {
        return name == "blocks.1" || name == "head";
      }}),
      ElementsAre("blocks.1", "head", ""));
  EXPECT_THROW(modules_to_wrap(*model, LambdaWrapPolicy{}), c10::ValueError);
}

TEST(Wrap, AlwaysNeverAndEither) {
  WrappedModel model;
  // Neither the list nor the activations count, because they have nothing to
  // shard.
  EXPECT_THAT(
      modules_to_wrap(*model, kAll),
      ElementsAre("embed", "blocks.0.up", "blocks.0.down", "blocks.0",
                  "blocks.1.up", "blocks.1.down", "blocks.1", "head", ""));
  EXPECT_THAT(modules_to_wrap(*model, NoWrapPolicy()), ElementsAre(""));
  EXPECT_THAT(
      modules_to_wrap(*model,
                      OrWrapPolicy{{ModuleWrapPolicy::of<WrappedBlockImpl>(),
                                    ModuleWrapPolicy({"EmbeddingImpl"})}}),
      ElementsAre("embed", "blocks.0", "blocks.1", ""));
}

// A WrappedBlock has 40 elements in `up`, 36 in `down`; embed and head have 24.
TEST(Wrap, BySizeFromTheInsideOut) {
  WrappedModel model;
  EXPECT_THAT(modules_to_wrap(*model, SizeBasedWrapPolicy{40}),
              ElementsAre("blocks.0.up", "blocks.1.up", ""));
  EXPECT_THAT(modules_to_wrap(*model, SizeBasedWrapPolicy{36}),
              ElementsAre("blocks.0.up", "blocks.0.down", "blocks.1.up",
                          "blocks.1.down", ""));
  EXPECT_THAT(modules_to_wrap(*model, SizeBasedWrapPolicy{41}),
              ElementsAre("blocks.0", "blocks.1", ""));
  // The list is large enough, but lists are not wrapped: the elements stay with
  // the root.
  EXPECT_THAT(modules_to_wrap(*model, SizeBasedWrapPolicy{77}),
              ElementsAre(""));
  EXPECT_THAT(modules_to_wrap(*model, SizeBasedWrapPolicy{}), ElementsAre(""));
  EXPECT_THROW(modules_to_wrap(*model, SizeBasedWrapPolicy{0}),
               c10::ValueError);
}

TEST(Wrap, BySizeIgnoredParametersDoNotCount) {
  WrappedModel model;
  const auto& up = model->blocks->ptr<WrappedBlockImpl>(0)->up;
  EXPECT_THAT(modules_to_wrap(*model, SizeBasedWrapPolicy{40}, {up->weight}),
              ElementsAre("blocks.0", "blocks.1.up", ""));
}

TEST(Wrap, BySizeAttentionIsALeafAndDictsAreOpened) {
  torch::nn::ModuleDict dict;
  dict->update({{"attention", torch::nn::MultiheadAttention(8, 2).ptr()},
                {"linear", Linear(8, 8).ptr()}});
  torch::nn::ModuleList list;
  list->push_back(dict);
  EXPECT_THAT(modules_to_wrap(*list, SizeBasedWrapPolicy{64}),
              ElementsAre("0.linear", ""));
}

TEST(Wrap, ATieIsShardedInOneCall) {
  WrappedModel model;
  model->TieHead();
  EXPECT_THAT(
      modules_to_wrap(
          *model,
          OrWrapPolicy{{ModuleWrapPolicy::of<WrappedBlockImpl>(),
                        ModuleWrapPolicy({"EmbeddingImpl", "LinearImpl"})}}),
      ElementsAre("blocks.0.up", "blocks.0.down", "blocks.0", "blocks.1.up",
                  "blocks.1.down", "blocks.1", ""));
}

TEST(Wrap, ATieIsShardedWithTheInnermostModuleThatHoldsIt) {
  WrappedModel inner;
  inner->TieHead();
  torch::nn::Sequential outer(inner, Linear(6, 6));
  EXPECT_THAT(modules_to_wrap(*outer, ModuleWrapPolicy({"EmbeddingImpl"})),
              ElementsAre("0", ""));
  // A tie between a list's blocks does not make the list a group.
  WrappedModel tied;
  auto first = tied->blocks->ptr<WrappedBlockImpl>(0);
  auto second = tied->blocks->ptr<WrappedBlockImpl>(1);
  ParameterRegistry(*second->up)["weight"] = first->up->weight;
  torch::nn::Sequential around(tied);
  EXPECT_THAT(modules_to_wrap(*around, ModuleWrapPolicy({"WrappedBlockImpl"})),
              ElementsAre("0", ""));
}

TEST(Wrap, IgnoresTiesInsideOnePickAndOfIgnoredParameters) {
  WrappedModel model;
  auto block = model->blocks->ptr<WrappedBlockImpl>(0);
  block->down->register_parameter("tied", block->up->weight);
  EXPECT_THAT(modules_to_wrap(*model, ModuleWrapPolicy::of<WrappedBlockImpl>()),
              ElementsAre("blocks.0", "blocks.1", ""));
  WrappedModel other;
  other->TieHead();
  EXPECT_THAT(modules_to_wrap(*other, ModuleWrapPolicy({"EmbeddingImpl"}),
                              {other->embed->weight}),
              ElementsAre(""));
}

TEST(Wrap, APickedModuleInTwoPlacesIsOneGroup) {
  Linear shared(4, 4);
  torch::nn::Sequential model(shared, Linear(4, 4), shared);
  EXPECT_THAT(modules_to_wrap(*model, kAll), ElementsAre("0", "1", ""));
}

std::vector<std::string> HandleNames(const std::vector<FSDPModule>& handles) {
  std::vector<std::string> names;
  for (const FSDPModule& handle : handles) names.push_back(handle.name());
  return names;
}

FullyShardOptions OnCpu() {
  init_process_group();
  return {.mesh = init_device_mesh("cpu", {get_world_size()})};
}

TEST(Wrap, AutoWrapShardsBottomUp) {
  testing::RunRanks(2, [] {
    const FullyShardOptions options = OnCpu();
    WrappedModel model;
    const auto handles =
        auto_wrap(model, ModuleWrapPolicy::of<WrappedBlockImpl>(), options);
    EXPECT_THAT(HandleNames(handles), ElementsAre("blocks.0", "blocks.1", ""));
    EXPECT_TRUE(handles.back().is_root());
    EXPECT_EQ(model->blocks->ptr<WrappedBlockImpl>(0)->parameters()[0].size(0),
              4);
    model(at::ones({3}, at::kLong)).sum().backward();
    for (const at::Tensor& parameter : model->parameters()) {
      EXPECT_TRUE(parameter.grad().defined());
    }
    EXPECT_THAT(testing::ThrownMessage(
                    [&] { auto_wrap(model, NoWrapPolicy(), options); }),
                HasSubstr("only once"));
  });
}

TEST(Wrap, AutoWrapLeavesShardedModulesAlone) {
  testing::RunRanks(2, [] {
    const FullyShardOptions options = OnCpu();
    WrappedModel model;
    fully_shard(model->blocks->ptr(0), options);
    EXPECT_THAT(HandleNames(auto_wrap(model, kAll, options)),
                ElementsAre("embed", "blocks.1.up", "blocks.1.down", "blocks.1",
                            "head", ""));
    EXPECT_EQ(fsdp_modules(*model).size(), 7);
  });
}

TEST(Wrap, OptionsByModule) {
  testing::RunRanks(2, [] {
    const FullyShardOptions options = OnCpu();
    WrappedModel model;
    std::vector<std::string> asked;
    auto_wrap(model, WrapPolicy(ModuleWrapPolicy::of<WrappedBlockImpl>()),
              OptionsFn([&](const std::string& name,
                            const torch::nn::Module& module) {
                EXPECT_EQ(name.empty(), &module == model.get());
                asked.push_back(name);
                return options;
              }));
    EXPECT_THAT(asked, ElementsAre("", "blocks.0", "blocks.1", ""));
  });
}

TEST(Wrap, ChildrenAndTheElementsOfLists) {
  testing::RunRanks(2, [] {
    const FullyShardOptions options = OnCpu();
    WrappedModel model;
    EXPECT_THAT(HandleNames(fully_shard_children(model, options)),
                ElementsAre("embed", "blocks.0", "blocks.1", "head", ""));
    WrappedModel tied;
    tied->TieHead();
    EXPECT_THAT(HandleNames(fully_shard_children(tied, options)),
                ElementsAre("blocks.0", "blocks.1", ""));
    EXPECT_EQ(parameters(*tied).size(), 2 * 4 + 2);
    tied(at::ones({3}, at::kLong)).sum().backward();
    EXPECT_TRUE(tied->parameters()[0].grad().defined());
  });
}

}  // namespace
}  // namespace fsdp
