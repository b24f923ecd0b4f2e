// SPDX-License-Identifier: Apache-2.0

#include "fsdp/optim/muon_with_adamw.h"

#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/module/names.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/start_rank.h"
#include "tests/fsdp/tiny_model.h"
#include "tests/testing/ranks.h"
#include "torch/nn/modules/conv.h"
#include "torch/serialize.h"

namespace fsdp {
namespace {

using optim::MuonOptions;
using optim::MuonWithAdamW;
using optim::MuonWithAdamWOptions;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ParseNumbers;
using testing::Report;
using testing::RunRanks;
using testing::StartRankInDouble;
using testing::ThrownMessage;
using testing::TinyBatch;
using testing::TinyLoss;
using testing::TinyModel;
using testing::TinyModelOptions;

// Those of TinyModel that are matrices, but embeddings or the head.
const std::vector<std::string>& ForAdamW() {
  static const auto* const kNames =
      new std::vector<std::string>{"tokens.*", "positions.*", "head.*"};
  return *kNames;
}

std::vector<std::string> Names(const MuonWithAdamW& optimizer,
                               const torch::nn::Module& module, size_t group) {
  return optimizer_parameter_names(optimizer, module)[group];
}

TEST(MuonWithAdamW, GivesMatricesToMuonAndTheRestToAdamW) {
  TinyModel model(TinyModelOptions{.num_blocks = 1});
  const MuonWithAdamW optimizer(
      *model, ForAdamW(),
      {.muon = MuonOptions(0.5), .adamw = FusedAdamWOptions(0.25)});
  ASSERT_EQ(optimizer.param_groups().size(), 2u);
  EXPECT_THAT(Names(optimizer, *model, 0),
              ElementsAre("blocks.0.scale", "blocks.0.attention.qkv.weight",
                          "blocks.0.attention.out.weight",
                          "blocks.0.mlp.0.weight", "blocks.0.mlp.2.weight"));
  const std::vector<std::string> rest = Names(optimizer, *model, 1);
  EXPECT_THAT(rest, AllOf(Contains("tokens.weight"), Contains("head.weight"),
                          Contains("blocks.0.norm.weight"),
                          Contains("blocks.0.attention.qkv.bias")));
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.5);
  EXPECT_EQ(optimizer.param_groups()[1].options().get_lr(), 0.25);
}

TEST(MuonWithAdamW, TakesAPredicate) {
  TinyModel model(TinyModelOptions{.num_blocks = 1});
  const MuonWithAdamW optimizer(
      *model, [](const std::string& name, const std::vector<int64_t>& shape) {
        return shape.size() == 2 && name.find("mlp") != std::string::npos;
      });
  EXPECT_THAT(Names(optimizer, *model, 0),
              ElementsAre("blocks.0.mlp.0.weight", "blocks.0.mlp.2.weight"));
}

TEST(MuonWithAdamW, ListsATiedParameterOnce) {
  TinyModel model(TinyModelOptions{.num_blocks = 1, .tied = true});
  const MuonWithAdamW optimizer(*model, {"tokens.*", "positions.*"});
  EXPECT_THAT(Names(optimizer, *model, 0), Not(Contains("head.weight")));
}

TEST(MuonWithAdamW, HasGroupsForStacksAndFusedParameters) {
  torch::nn::Sequential model(torch::nn::Conv1d(4, 6, 3),
                              torch::nn::Linear(5, 12),
                              torch::nn::Linear(12, 5));
  const MuonWithAdamW by_default(*model, {});
  EXPECT_THAT(Names(by_default, *model, 0),
              ElementsAre("1.weight", "2.weight"));
  const MuonWithAdamW optimizer(
      *model, {}, {.stacks = {"0.*"}, .rows_per_matrix = {{"1.w*", 4}}});
  ASSERT_EQ(optimizer.param_groups().size(), 4u);
  EXPECT_THAT(Names(optimizer, *model, 0), ElementsAre("2.weight"));
  EXPECT_THAT(Names(optimizer, *model, 1), ElementsAre("1.weight"));
  EXPECT_THAT(Names(optimizer, *model, 2), ElementsAre("0.weight"));
  EXPECT_EQ(
      static_cast<const MuonOptions&>(optimizer.param_groups()[1].options())
          .rows_per_matrix(),
      4);
}

TEST(MuonWithAdamW, RefusesBadInputByName) {
  TinyModel model(TinyModelOptions{.num_blocks = 1});
  const auto message = [&](const std::vector<std::string>& names,
                           const MuonWithAdamWOptions& options = {}) {
    return ThrownMessage([&] { MuonWithAdamW(*model, names, options); });
  };
  EXPECT_THAT(message({"tokens.*", "haed.*"}),
              AllOf(HasSubstr("adamw_names has \"haed.*\", which matches no "
                              "parameter's name"),
                    HasSubstr("tokens.weight")));
  EXPECT_THAT(message({}, {.stacks = {"experts.*"}}),
              HasSubstr("stacks has \"experts.*\""));
  EXPECT_THAT(message({}, {.rows_per_matrix = {{"*.qkv.weight", 5}}}),
              HasSubstr("parameter 'blocks.0.attention.qkv.weight' has shape "
                        "[54, 18] and 54 rows, which rows_per_matrix 5 does "
                        "not divide"));
  EXPECT_THAT(message({}, {.adamw = FusedAdamWOptions(-1)}),
              HasSubstr("lr -1 is below 0"));
  EXPECT_THAT(message({}, {.muon = MuonOptions().adjust_lr_fn("x")}),
              HasSubstr("adjust_lr_fn \"x\""));
  EXPECT_THAT(ThrownMessage([&] {
                MuonWithAdamW(*model,
                              [](const auto&, const auto&) { return true; });
              }),
              AllOf(HasSubstr("parameter 'blocks.0.norm.weight' has shape [18] "
                              "and 1 dimensions"),
                    HasSubstr("Muon takes matrices")));
  const MuonWithAdamW optimizer(*model, ForAdamW());
  std::stringstream stream;
  EXPECT_THAT(ThrownMessage([&] { torch::save(optimizer, stream); }),
              HasSubstr("get_optimizer_state_dict"));
}

// The losses of 100 steps, averaged over the ranks.
std::vector<double> TrainedLosses(TinyModel& model, int64_t rank,
                                  int64_t world) {
  MuonWithAdamW optimizer(
      *model, ForAdamW(),
      {.muon = MuonOptions(5e-3).adjust_lr_fn("match_rms_adamw"),
       .adamw = FusedAdamWOptions(5e-3)});
  std::vector<double> losses;
  for (int64_t step = 0; step < 100; ++step) {
    const torch::Tensor loss = TinyLoss(
        model, TinyBatch(step % 3).chunk(world)[static_cast<size_t>(rank)]);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

TinyModel MakeTinyModel() {
  torch::manual_seed(5);
  return TinyModel();
}

// In float64, because the last bit of a float32 gradient, which depends on the
// order of sums, may change the number that bfloat16 rounds it to.
TEST(MuonWithAdamW, TrainsAsOnOneProcess) {
  for (const int world : {1, 2, 3, 4}) {
    const std::vector<std::string> reports = RunRanks(world, [world] {
      StartRankInDouble();
      const int64_t rank = get_rank();
      TinyModel model = MakeTinyModel();
      const DeviceMesh mesh = init_device_mesh("cpu", {world});
      for (const auto& block : *model->blocks) {
        fully_shard(block, {.mesh = mesh});
      }
      fully_shard(model, {.mesh = mesh});
      for (const double loss : TrainedLosses(model, rank, world)) Report(loss);
      if (rank > 0) return;
      TinyModel whole = MakeTinyModel();
      for (const double loss : TrainedLosses(whole, 0, 1)) Report(loss);
    });
    const size_t num_steps = 100;
    const std::vector<double> first = ParseNumbers(reports[0]);
    ASSERT_EQ(first.size(), 2 * num_steps);
    EXPECT_LT(first[2 * num_steps - 1], 0.8 * first[num_steps]);
    for (size_t step = 0; step < num_steps; ++step) {
      double loss = 0;
      for (const std::string& report : reports) {
        loss += ParseNumbers(report)[step] / world;
      }
      EXPECT_NEAR(loss, first[num_steps + step], 1e-10) << step;
    }
  }
}

}  // namespace
}  // namespace fsdp
