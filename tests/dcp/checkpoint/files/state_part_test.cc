// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/files/state_part.h"

#include <string>
#include <utility>
#include <vector>

#include "dcp/format/torch/state_path.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

CheckpointEntry Tensor(StatePath path) {
  CheckpointEntry entry;
  entry.fqn = PathToName(path);
  entry.path = std::move(path);
  return entry;
}

// A tensor in a format without paths.
CheckpointEntry Named(std::string fqn) {
  CheckpointEntry entry;
  entry.fqn = std::move(fqn);
  return entry;
}

CheckpointEntry Object(StatePath path) {
  CheckpointEntry entry = Tensor(std::move(path));
  entry.value = ObjectEntry();
  return entry;
}

// "model 1" and so on, for each.
std::vector<std::string> PlaceTexts(
    const std::vector<CheckpointEntry>& entries) {
  const StateParts parts(entries);
  std::vector<std::string> texts;
  for (const CheckpointEntry& entry : entries) {
    const StateParts::Place place = parts.EntryPlace(entry);
    texts.push_back(std::string(StatePartName(place.part)) + " " +
                    std::to_string(place.num_roots));
  }
  return texts;
}

TEST(StatePart, HasNames) {
  EXPECT_THAT(ParseStatePart("optimizer"), IsOkAndHolds(StatePart::kOptimizer));
  EXPECT_THAT(ParseStatePart("weights"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'weights' is not model, optimizer or")));
}

TEST(StatePart, RootsNameTheParts) {
  EXPECT_THAT(
      PlaceTexts({Tensor({"model", "a.weight"}),
                  Tensor({"optimizer", "state", "a.weight", "exp_avg"}),
                  Object({"extra", "step"}), Object({"epoch"})}),
      ::testing::ElementsAre("model 1", "optimizer 1", "extra 1", "extra 0"));
}

TEST(StatePart, ComposerHasThemBelowState) {
  EXPECT_THAT(
      PlaceTexts({Tensor({"state", "model", "a.weight"}),
                  Tensor({"state", "optimizers", "Adam", "state"}),
                  Object({"state", "run_name"}), Object({"rng", 0})}),
      ::testing::ElementsAre("model 2", "optimizer 2", "extra 0", "extra 0"));
}

TEST(StatePart, TorchTitanHasTheModelAtTheTop) {
  EXPECT_THAT(
      PlaceTexts({Tensor({"layers.0.wq.weight"}),
                  Tensor({"optimizer", "state", "w", "exp_avg"}),
                  Object({"lr_scheduler", "last_epoch"}),
                  Tensor({"train_state"})}),
      ::testing::ElementsAre("model 0", "optimizer 1", "extra 0", "extra 0"));
}

TEST(StatePart, MegatronHasNamesWithoutPaths) {
  EXPECT_THAT(PlaceTexts({Named("decoder.layers.mlp.linear_fc1.weight"),
                          Named("optimizer.state.exp_avg.w"),
                          Named("chained_1.optimizer.state.exp_avg.w"),
                          Named("rng_state/shard_0_1")}),
              ::testing::ElementsAre("model 0", "optimizer 0", "optimizer 0",
                                     "extra 0"));
}

TEST(StatePart, KnowsTheNamesOfTutorialsAndLibraries) {
  const auto expect_known = [](const std::string& model,
                               const std::string& optimizer) {
    SCOPED_TRACE(model);
    EXPECT_THAT(PlaceTexts({Object({"epoch"}), Tensor({model, "weight"}),
                            Tensor({optimizer, "state", 0, "exp_avg"}),
                            Object({optimizer, "param_groups", 0, "lr"})}),
                ::testing::ElementsAre("extra 0", "model 1", "optimizer 1",
                                       "optimizer 1"));
  };
  expect_known("model_state_dict", "optimizer_state_dict");
  expect_known("net", "optim");
  expect_known("module", "opt_g");
  expect_known("params", "my_adam");
  // Lightning has a list with optimizers.
  EXPECT_THAT(
      PlaceTexts({Tensor({"state_dict", "w"}),
                  Tensor({"optimizer_states", 0, "state", 0, "exp_avg"}),
                  Object({"hyper_parameters", "lr"})}),
      ::testing::ElementsAre("model 1", "optimizer 1", "extra 0"));
  // PyTorch's DCP tutorial.
  EXPECT_THAT(PlaceTexts({Tensor({"app", "model", "w"}),
                          Tensor({"app", "optim", "state", "w", "exp_avg"})}),
              ::testing::ElementsAre("model 2", "optimizer 2"));
}

TEST(StatePart, ASecondModelKeepsItsRoot) {
  const std::vector<CheckpointEntry> entries = {
      Tensor({"model", "w"}), Tensor({"model_1", "w"}),
      Tensor({"optimizer_1", "state", "w", "exp_avg"})};
  const StateParts parts(entries);
  EXPECT_EQ(parts.EntryPlace(entries[1]).part, StatePart::kModel);
  EXPECT_EQ(parts.EntryPlace(entries[1]).number, "1");
  EXPECT_EQ(parts.EntryPlace(entries[2]).part, StatePart::kOptimizer);
}

TEST(StatePart, KeysThatAreNotKnownAreNamed) {
  const std::vector<CheckpointEntry> entries = {
      Object({"epoch"}), Tensor({"generator", "w"}),
      Tensor({"discriminator", "w"}), Tensor({"opt_g", "state", 0, "exp_avg"}),
      Object({"opt_g", "param_groups", 0, "lr"})};
  EXPECT_THAT(StateParts(entries).Check(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("discriminator, generator, opt_g")));
  // Two of the known names, and none of them is "model".
  EXPECT_THAT(
      StateParts(std::vector<CheckpointEntry>{Tensor({"net", "w"}),
                                              Tensor({"module", "w"})})
          .Check(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("module, net")));
  EXPECT_OK(StateParts(std::vector<CheckpointEntry>{Named("a.b"),
                                                    Tensor({"layers.0.w"})})
                .Check());
}

// transformers' models have a module with this name.
TEST(StatePart, AModelsOwnNamesMayBeginWithModel) {
  EXPECT_THAT(
      PlaceTexts({Named("model.layers.0.weight"), Named("lm_head.weight"),
                  Tensor({"model.norm.weight"}), Tensor({"model"})}),
      ::testing::Each("model 0"));
}

}  // namespace
}  // namespace dcp
