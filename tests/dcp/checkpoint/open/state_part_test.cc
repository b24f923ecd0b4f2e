#include "dcp/checkpoint/open/state_part.h"

#include <string>
#include <utility>
#include <vector>

#include "dcp/format/state_path.h"
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

// A tensor of a format without paths.
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
std::vector<std::string> PlacesOf(const std::vector<CheckpointEntry>& entries) {
  const StateParts parts(entries);
  std::vector<std::string> texts;
  for (const CheckpointEntry& entry : entries) {
    const StateParts::Place place = parts.PlaceOf(entry);
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
      PlacesOf({Tensor({"model", "a.weight"}),
                Tensor({"optimizer", "state", "a.weight", "exp_avg"}),
                Object({"extra", "step"}), Object({"epoch"})}),
      ::testing::ElementsAre("model 1", "optimizer 1", "extra 1", "extra 0"));
}

TEST(StatePart, ComposerHasThemBelowState) {
  EXPECT_THAT(
      PlacesOf({Tensor({"state", "model", "a.weight"}),
                Tensor({"state", "optimizers", "Adam", "state"}),
                Object({"state", "run_name"}), Object({"rng", 0})}),
      ::testing::ElementsAre("model 2", "optimizer 2", "extra 0", "extra 0"));
}

TEST(StatePart, TorchTitanHasTheModelAtTheTop) {
  EXPECT_THAT(
      PlacesOf({Tensor({"layers.0.wq.weight"}),
                Tensor({"optimizer", "state", "w", "exp_avg"}),
                Object({"lr_scheduler", "last_epoch"}),
                Tensor({"train_state"})}),
      ::testing::ElementsAre("model 0", "optimizer 1", "extra 0", "extra 0"));
}

TEST(StatePart, MegatronHasNamesWithoutPaths) {
  EXPECT_THAT(PlacesOf({Named("decoder.layers.mlp.linear_fc1.weight"),
                        Named("optimizer.state.exp_avg.w"),
                        Named("chained_1.optimizer.state.exp_avg.w"),
                        Named("rng_state/shard_0_1")}),
              ::testing::ElementsAre("model 0", "optimizer 0", "optimizer 0",
                                     "extra 0"));
}

// The models of transformers have a module that is called so.
TEST(StatePart, AModelsOwnNamesMayBeginWithModel) {
  EXPECT_THAT(PlacesOf({Named("model.layers.0.weight"), Named("lm_head.weight"),
                        Tensor({"model.norm.weight"}), Tensor({"model"})}),
              ::testing::Each("model 0"));
}

}  // namespace
}  // namespace dcp
