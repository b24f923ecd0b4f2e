// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/pipeline/keep_modules.h"

#include <memory>
#include <string>
#include <vector>

#include "c10/util/Exception.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/fully_shard.h"
#include "fsdp/module/names.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/module_snapshot.h"
#include "tests/fsdp/parallel/pipeline/staged_model.h"
#include "torch/nn.h"

namespace fsdp::testing {
namespace {

using ::testing::ElementsAre;

TEST(KeepModules, StagesInOrderMatchTheWholeModel) {
  constexpr int64_t kLayers = 5;
  StagedModel whole = WholeModel(kLayers);
  const torch::Tensor tokens = Tokens(0, 3);
  torch::Tensor h = tokens;
  std::vector<std::string> names;
  for (int64_t stage = 0; stage < 3; ++stage) {
    StagedModel model = MakeStageModel(stage, 3, kLayers);
    h = model(h);
    for (const std::string& name : parameter_names(*model)) {
      names.push_back(name);
      EXPECT_TRUE(torch::equal(model->named_parameters()[name],
                               whole->named_parameters()[name]))
          << name;
    }
  }
  EXPECT_TRUE(torch::equal(h, whole(tokens)));
  EXPECT_EQ(names, parameter_names(*whole));
}

TEST(KeepModules, KeepsNamesAndLoopsRunTheRemainingModules) {
  StagedModel model = WholeModel(4);
  const auto layer = model->layers->ptr(2).get();
  const std::weak_ptr<torch::nn::Module> gone = model->embed.ptr();
  keep_modules(*model, {"layers.2", "layers.3", "head"}, model->members());
  EXPECT_THAT(model->named_children().keys(), ElementsAre("layers", "head"));
  EXPECT_THAT(model->layers->named_children().keys(), ElementsAre("2", "3"));
  EXPECT_EQ(model->layers->size(), 2u);
  EXPECT_EQ(model->layers->begin()->get(), layer);
  EXPECT_TRUE(model->embed.is_empty());
  EXPECT_TRUE(model->norm.is_empty());
  EXPECT_FALSE(model->head.is_empty());
  EXPECT_TRUE(gone.expired());
  // Once more, where names and positions differ.
  keep_modules(*model, {"layers.3"}, model->members());
  EXPECT_THAT(parameter_names(*model),
              ElementsAre("layers.3.up.weight", "layers.3.up.bias",
                          "layers.3.down.weight", "layers.3.down.bias"));
  // A list that keeps nothing is an empty list.
  keep_modules(*model, {}, model->members());
  EXPECT_TRUE(model->layers->is_empty());
  const torch::Tensor x = torch::ones({2, kDim});
  EXPECT_TRUE(torch::equal(model(x), x));
}

TEST(KeepModules, SequentialsAndDictsLoseElements) {
  torch::nn::Linear first(3, 3);
  torch::nn::Sequential sequence(first, torch::nn::ReLU(),
                                 torch::nn::Linear(3, 3));
  const torch::Tensor x = torch::randn({2, 3});
  const torch::Tensor hidden = first(x);
  const torch::Tensor whole = sequence->forward(x);
  keep_modules(*sequence, {"1", "2"}, {&first});
  EXPECT_TRUE(first.is_empty());
  EXPECT_THAT(sequence->named_children().keys(), ElementsAre("1", "2"));
  EXPECT_EQ(sequence->size(), 2u);
  EXPECT_TRUE(torch::equal(sequence->forward(hidden), whole));

  torch::nn::ModuleDict dict;
  dict->update(
      {{"left", torch::nn::ReLU().ptr()}, {"right", torch::nn::GELU().ptr()}});
  keep_modules(*dict, {"right"});
  EXPECT_THAT(dict->keys(), ElementsAre("right"));
  EXPECT_THAT(dict->named_children().keys(), ElementsAre("right"));
}

// A model around a model, as Hugging Face's are.
struct WrapperImpl : torch::nn::Module {
  WrapperImpl() : model(register_module("model", WholeModel(2))) {
    scale = register_parameter("scale", torch::ones({1}));
    lm_head = register_module(
        "lm_head", std::make_shared<torch::nn::LinearImpl>(kDim, kVocabulary));
  }
  std::vector<ModuleMember> members() {
    std::vector<ModuleMember> members = model->members();
    members.push_back(&lm_head);
    return members;
  }
  StagedModel model;
  torch::Tensor scale;
  std::shared_ptr<torch::nn::LinearImpl> lm_head;
};

TEST(KeepModules, KeepsModulesAroundKeptOnes) {
  const auto wrapper = std::make_shared<WrapperImpl>();
  keep_modules(*wrapper, {"model.embed", "model.layers.1"}, wrapper->members());
  EXPECT_EQ(wrapper->lm_head, nullptr);
  EXPECT_THAT(
      parameter_names(*wrapper),
      ElementsAre("scale", "model.embed.weight", "model.layers.1.up.weight",
                  "model.layers.1.up.bias", "model.layers.1.down.weight",
                  "model.layers.1.down.bias"));
}

void ExpectRefused(StagedModel& model, const std::vector<std::string>& names,
                   const std::vector<ModuleMember>& members,
                   const std::vector<std::string>& says) {
  const ModuleSnapshot before(*model);
  ExpectError<c10::ValueError>([&] { keep_modules(*model, names, members); },
                               says);
  before.ExpectSame(*model);
  EXPECT_FALSE(model->embed.is_empty());
}

TEST(KeepModules, RefusesRemovalsThatWouldFailLater) {
  StagedModel model = WholeModel(3);
  ExpectRefused(model, {"layers.7"}, model->members(),
                {"no module 'layers.7'", "'layers' has the children 0, 1, 2"});
  ExpectRefused(model, {"hat"}, model->members(),
                {"no module 'hat'", "embed, layers, norm, head"});
  // A member that is not listed would keep the module, and forward would run
  // it.
  ExpectRefused(model, {"layers.0"}, {&model->norm, &model->head},
                {"removes 'embed'", "&model->embed"});
  {
    const auto held = model->layers->ptr(1);
    ExpectRefused(model, {"embed"}, model->members(), {"removes 'layers.1'"});
  }
  torch::nn::Linear other(2, 2);
  ExpectRefused(model, {"layers.0"}, {&other}, {"LinearImpl", "not in the"});
  keep_modules(*model, {"layers.0"}, model->members());
}

TEST(KeepModules, RefusesTensorsThatTwoStagesWouldTrain) {
  StagedModel model = WholeModel(3);
  model->head->weight = model->embed->weight;
  ParameterRegistry(*model->head)["weight"] = model->embed->weight;
  ExpectRefused(model, {"embed", "layers.0"}, model->members(),
                {"'embed.weight' and 'head.weight' are one tensor"});
  // On one stage they may be tied, and the other stages have neither.
  keep_modules(*model, {"embed", "norm", "head"}, model->members());
  keep_modules(*model, {"norm"}, model->members());
  EXPECT_THAT(parameter_names(*model), ElementsAre("norm.weight", "norm.bias"));
}

TEST(KeepModules, ComesBeforeSharding) {
  if (!is_initialized()) init_process_group();
  StagedModel model = WholeModel(3);
  fully_shard(model->layers->ptr(0));
  ExpectError<c10::ValueError>(
      [&] { keep_modules(*model, {"layers.0"}, model->members()); },
      {"keep_modules must come first", "sharded already"});
}

}  // namespace
}  // namespace fsdp::testing
