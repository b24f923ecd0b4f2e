// SPDX-License-Identifier: Apache-2.0
// The state of Muon over processes: training continues from it on other meshes.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state_dict.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/optim/fused_adamw.h"
#include "fsdp/optim/muon.h"
#include "fsdp/optim/muon_with_adamw.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/checkpoint/state_dict_cases.h"
#include "tests/fsdp/tiny_model.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "torch/torch.h"

namespace fsdp {
namespace {

using ::fsdp::testing::Dict;
using ::fsdp::testing::ListKeys;
using ::fsdp::testing::MakeModel;
using ::fsdp::testing::OptimizerPtr;
using ::fsdp::testing::RunRanks;
using ::fsdp::testing::ShardModel;
using ::fsdp::testing::TinyModel;
using ::fsdp::testing::TrainStep;
using ::fsdp::testing::WholeTensor;
using ::testing::ElementsAre;

OptimizerPtr MakeMuon(const TinyModel& model, double lr = 0.01) {
  return std::make_unique<optim::MuonWithAdamW>(
      *model, std::vector<std::string>{"tokens.*", "positions.*", "head.*"},
      optim::MuonWithAdamWOptions{
          .muon = optim::MuonOptions(lr).adjust_lr_fn("match_rms_adamw"),
          .adamw = FusedAdamWOptions(lr),
          .rows_per_matrix = {{"*.qkv.weight", 9}}});
}

TEST(StateDictOfMuon, HasPythonsFormat) {
  TinyModel model = MakeModel(3);
  const OptimizerPtr optimizer = MakeMuon(model);
  const auto state = get_optimizer_state_dict(*model, *optimizer);
  ASSERT_OK(state.status());
  const StateDict& entries = Dict(*state->find("state"));
  EXPECT_THAT(ListKeys(Dict(*entries.find("blocks.0.attention.qkv.weight"))),
              ElementsAre("momentum_buffer"));
  EXPECT_THAT(ListKeys(Dict(*entries.find("tokens.weight"))),
              ElementsAre("step", "exp_avg", "exp_avg_sq"));
  const auto& groups = *state->find("param_groups")->get_if<StateList>();
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_THAT(ListKeys(Dict(groups[0])),
              ElementsAre("lr", "weight_decay", "momentum", "nesterov",
                          "ns_coefficients", "eps", "ns_steps", "adjust_lr_fn",
                          "params"));
  EXPECT_EQ(*Dict(groups[0]).find("adjust_lr_fn")->get_if<std::string>(),
            "match_rms_adamw");
  EXPECT_EQ(*Dict(groups[0]).find("ns_steps")->get_if<int64_t>(), 5);
  EXPECT_NE(Dict(groups[2]).find("betas"), nullptr);
}

TEST(StateDictOfMuon, TrainingContinuesOnAnotherMesh) {
  for (const int world : {3, 4}) {
    RunRanks(world, [world] {
      init_process_group();
      const int64_t rank = get_rank();
      TinyModel model = MakeModel(12), other = MakeModel(13);
      ShardModel(model, {world});
      ShardModel(other, world == 4 ? std::vector<int64_t>{2, 2}
                                   : std::vector<int64_t>{1, 3});
      const OptimizerPtr optimizer = MakeMuon(model);
      for (int64_t step = 0; step < 3; ++step) {
        TrainStep(model, *optimizer, step, rank, world);
      }
      const auto state = [](TinyModel& module,
                            torch::optim::Optimizer& of_module) {
        return StateDict{
            {"model", *get_model_state_dict(*module)},
            {"optim", *get_optimizer_state_dict(*module, of_module)}};
      };
      const std::string path =
          absl::StrCat(fsdp::testing::SharedDir(), "/", world);
      ASSERT_OK(save(state(model, *optimizer), path));
      const OptimizerPtr resumed = MakeMuon(other, /*lr=*/7);
      StateDict target = state(other, *resumed);
      ASSERT_OK(load(target, path));
      ASSERT_OK(set_optimizer_state_dict(*other, *resumed,
                                         Dict(*target.find("optim"))));
      for (int64_t step = 3; step < 6; ++step) {
        EXPECT_NEAR(TrainStep(model, *optimizer, step, rank, world),
                    TrainStep(other, *resumed, step, rank, world), 1e-4);
      }
    });
  }
}

TEST(StateDictOfMuon, ReadsPythonsTwoOptimizers) {
  torch::nn::Linear model(3, 2);
  optim::MuonWithAdamW optimizer(*model, {});
  const StateDict python = {
      {"state",
       StateDict(
           {{"weight",
             StateDict({{"momentum_buffer", torch::full({2, 3}, 0.5)}})},
            {"bias", StateDict({{"step", torch::tensor(4.0)},
                                {"exp_avg", torch::full({2}, 0.25)},
                                {"exp_avg_sq", torch::full({2}, 2.)}})}})},
      {"param_groups",
       StateList{StateDict({{"lr", 0.125},
                            {"ns_steps", 3},
                            {"adjust_lr_fn", StateValue()},
                            {"params", StateList{"weight"}}}),
                 StateDict({{"lr", 0.5}, {"params", StateList{"bias"}}})}}};
  ASSERT_OK(set_optimizer_state_dict(*model, optimizer, python));
  const auto& muon = static_cast<const optim::MuonOptions&>(
      optimizer.param_groups()[0].options());
  EXPECT_EQ(muon.lr(), 0.125);
  EXPECT_EQ(muon.ns_steps(), 3);
  EXPECT_EQ(optimizer.param_groups()[1].options().get_lr(), 0.5);
  const auto state = get_optimizer_state_dict(*model, optimizer);
  ASSERT_OK(state.status());
  const StateDict& entries = Dict(*state->find("state"));
  EXPECT_TRUE(torch::equal(
      WholeTensor(*Dict(*entries.find("weight")).find("momentum_buffer")),
      torch::full({2, 3}, 0.5)));
  EXPECT_EQ(
      WholeTensor(*Dict(*entries.find("bias")).find("step")).item<float>(), 4);
}

}  // namespace
}  // namespace fsdp
