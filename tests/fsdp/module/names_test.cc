// SPDX-License-Identifier: Apache-2.0

#include "fsdp/module/names.h"

#include <string>
#include <vector>

#include "fsdp/fully_shard.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/module/activation_checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "torch/torch.h"

namespace fsdp {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

torch::nn::Sequential Model() {
  torch::nn::Linear shared(4, 4);
  return torch::nn::Sequential(shared, torch::nn::BatchNorm1d(4), shared);
}

const auto kParameters =
    ElementsAre("0.weight", "0.bias", "1.weight", "1.bias");

TEST(Names, FirstNamesOfParametersAndBuffers) {
  const torch::nn::Sequential model = Model();
  EXPECT_THAT(parameter_names(*model), kParameters);
  EXPECT_THAT(
      buffer_names(*model),
      ElementsAre("1.running_mean", "1.running_var", "1.num_batches_tracked"));
}

TEST(Names, AreTheSameWithActivationCheckpointing) {
  torch::nn::Sequential model = Model();
  apply_activation_checkpointing(*model, [](const auto&) { return true; });
  EXPECT_THAT(parameter_names(*model), kParameters);
}

TEST(Names, FindsTheNamesOfTensors) {
  torch::nn::Sequential model = Model();
  const NameMap map(*model);
  EXPECT_EQ(map.name_of(model->parameters()[2]), "1.weight");
  EXPECT_EQ(map.name_of(model->buffers()[1]), "1.running_var");
  EXPECT_EQ(map.name_of(model->named_parameters()["2.bias"]), "0.bias");
  EXPECT_EQ(map.find(torch::ones({2})), nullptr);
  EXPECT_THAT([&] { map.name_of(torch::ones({2})); },
              ThrowsMessage<c10::ValueError>(HasSubstr("[2]")));
}

TEST(Names, ListsTheNamesInOptimizerGroups) {
  torch::nn::Sequential model = Model();
  const std::vector<torch::Tensor> p = model->parameters();
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<torch::Tensor>{p[2], p[3]});
  groups.emplace_back(std::vector<torch::Tensor>{p[1], p[0]});
  const torch::optim::AdamW optimizer(groups);
  EXPECT_THAT(optimizer_parameter_names(optimizer, *model),
              ElementsAre(ElementsAre("1.weight", "1.bias"),
                          ElementsAre("0.bias", "0.weight")));
  EXPECT_THAT(
      [&] { optimizer_parameter_names(optimizer, *Model()); },
      ThrowsMessage<c10::ValueError>(AllOf(HasSubstr("parameter 0 of group 0"),
                                           HasSubstr("after fully_shard"))));
}

TEST(Names, AreTheSameForAShardedModule) {
  testing::RunRanks(2, [] {
    init_process_group();
    const FullyShardOptions options = {.mesh = init_device_mesh("cpu", {2})};
    torch::nn::Sequential model = Model();
    const std::vector<torch::Tensor> whole = model->parameters();
    torch::optim::SGD early({whole[0]}, torch::optim::SGDOptions(0.1));
    fully_shard(model->ptr(1), options);
    fully_shard(model, options);
    EXPECT_THAT(parameter_names(*model), kParameters);
    const NameMap map(*model);
    EXPECT_EQ(map.name_of(model->parameters()[0]), "0.weight");
    EXPECT_EQ(map.name_of(model->ptr<torch::nn::LinearImpl>(0)->weight),
              "0.weight");
    torch::optim::AdamW optimizer({model->parameters()[2]});
    EXPECT_THAT(optimizer_parameter_names(optimizer, *model),
                ElementsAre(ElementsAre("1.weight")));
    EXPECT_THAT(testing::ThrownMessage(
                    [&] { optimizer_parameter_names(early, *model); }),
                HasSubstr("after fully_shard"));
  });
}

}  // namespace
}  // namespace fsdp
