// SPDX-License-Identifier: Apache-2.0
// Checkpoints from a pipeline with two stages, each sharded over two ranks:
// they load on one process, on four, and on other stages.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state_dict.h"
#include "fsdp/fully_shard.h"
#include "fsdp/parallel/pipeline/schedules.h"
#include "gtest/gtest.h"
#include "tests/fsdp/parallel/pipeline/staged_model.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "torch/optim/adamw.h"

namespace fsdp::testing {
namespace {

using torch::Tensor;

constexpr int64_t kLayers = 5;
constexpr int64_t kRows = 8;

// With flat names, "param_groups.head.weight.lr", because the stages'
// optimizers have different parameters.
const StateDictOptions kFlat{.flatten_optimizer_state_dict = true};

struct Training {
  explicit Training(StagedModel trained)
      : model(std::move(trained)), optimizer(model->parameters(), 0.05) {}

  StateDict State() {
    auto state = get_state_dict(*model, optimizer, kFlat);
    EXPECT_OK(state);
    return {{"model", state->first}, {"optim", state->second}};
  }
  void Load(const std::string& path, const TorchLoadOptions& options = {}) {
    StateDict state = State();
    ASSERT_OK(load(state, path, options));
    ASSERT_OK(set_state_dict(*model, optimizer,
                             *state["model"].get_if<StateDict>(),
                             *state["optim"].get_if<StateDict>(), kFlat));
  }

  StagedModel model;
  torch::optim::AdamW optimizer;
};

// Sharded over the axis "dp".
StagedModel Sharded(StagedModel model, const DeviceMesh& dp) {
  for (const auto& layer : *model->layers) fully_shard(layer, {.mesh = dp});
  fully_shard(model, {.mesh = dp});
  return model;
}

// Sets values other than the saved ones.
StagedModel Forget(StagedModel model) {
  const torch::NoGradGuard no_grad;
  for (Tensor& parameter : model->parameters()) parameter.fill_(7);
  return model;
}

void Train(Training& training, const DeviceMesh& mesh, int64_t num_steps) {
  Schedule1F1B schedule(PipelineStage(training.model, mesh["pp"]), 4,
                        TokenLoss);
  for (int64_t step = 0; step < num_steps; ++step) {
    training.optimizer.zero_grad();
    schedule.step(
        {.args = {Tokens(step, kRows)}, .target = Tokens(50 + step, kRows)});
    training.optimizer.step();
  }
}

// The training in one process.
Training Reference(int64_t num_steps) {
  Training training(WholeModel(kLayers));
  for (int64_t step = 0; step < num_steps; ++step) {
    training.optimizer.zero_grad();
    TokenLoss(training.model(Tokens(step, kRows)), Tokens(50 + step, kRows))
        .backward();
    training.optimizer.step();
  }
  return training;
}

// Every value in `training` is equal to that in `whole`. Collective.
void ExpectSame(Training& training, Training& whole, const std::string& text) {
  const StateDict actual = training.State(), expected = whole.State();
  size_t num_tensors = 0;
  for (const char* part : {"model", "optim"}) {
    const StateDict& values = *expected.find(part)->get_if<StateDict>();
    for (const auto& [name, value] : *actual.find(part)->get_if<StateDict>()) {
      SCOPED_TRACE(absl::StrCat(text, ": ", part, ".", name));
      const StateValue* same = values.find(name);
      ASSERT_NE(same, nullptr);
      if (const auto* number = value.get_if<double>()) {
        EXPECT_EQ(*number, *same->get_if<double>());
      }
      const auto* sharded = value.get_if<DTensor>();
      const auto* plain = value.get_if<Tensor>();
      if (sharded == nullptr && plain == nullptr) continue;
      ++num_tensors;
      EXPECT_TRUE(
          torch::allclose(sharded == nullptr ? *plain : sharded->full_tensor(),
                          *same->get_if<Tensor>(), 1e-6, 1e-9));
    }
  }
  // Values, and step, exp_avg and exp_avg_sq.
  EXPECT_EQ(num_tensors, 4 * training.model->parameters().size()) << text;
}

// A group with this process alone.
ProcessGroup Alone() {
  std::vector<std::vector<int64_t>> groups;
  for (int64_t rank = 0; rank < get_world_size(); ++rank) {
    groups.push_back({rank});
  }
  return new_subgroups(groups, "alone");
}

DeviceMesh TwoByTwo() { return init_device_mesh("cpu", {2, 2}, {"pp", "dp"}); }

StagedModel MakeStage(const DeviceMesh& mesh) {
  return MakeStageModel(mesh.get_local_rank("pp"), mesh.size(0), kLayers);
}

// Loads the checkpoint at `path` in every way, on 4 ranks.
void LoadInEveryWay(const std::string& path, Training& reference) {
  Training whole(Forget(WholeModel(kLayers)));
  whole.Load(path, {.process_group = Alone()});
  ExpectSame(whole, reference, "one process");

  const DeviceMesh all = init_device_mesh("cpu", {4}, {"dp"});
  Training sharded(Sharded(Forget(WholeModel(kLayers)), all));
  sharded.Load(path);
  ExpectSame(sharded, reference, "four ranks without stages");

  const DeviceMesh mesh = TwoByTwo();
  Training same(Sharded(Forget(MakeStage(mesh)), mesh["dp"]));
  same.Load(path);
  ExpectSame(same, reference, "the same stages");

  // Stages that are divided in another way.
  StagedModel model = WholeModel(kLayers);
  const bool is_first = mesh.get_local_rank("pp") == 0;
  keep_modules(
      *model,
      is_first ? std::vector<std::string>{"embed", "layers.0"}
               : std::vector<std::string>{"layers.1", "layers.2", "layers.3",
                                          "layers.4", "norm", "head"},
      model->members());
  Training other(Sharded(Forget(model), mesh["dp"]));
  other.Load(path);
  ExpectSame(other, reference, "other stages");

  const DeviceMesh four = init_device_mesh("cpu", {4, 1}, {"pp", "dp"});
  Training plain(Forget(MakeStage(four)));
  plain.Load(path);
  ExpectSame(plain, reference, "four stages without sharding");
}

TEST(PipelineCheckpoint, LoadsOnAnyStagesAndRanks) {
  RunRanks(4, [] {
    StartRankInDouble();
    Training reference = Reference(3);
    {
      const DeviceMesh mesh = TwoByTwo();
      Training training(Sharded(MakeStage(mesh), mesh["dp"]));
      Train(training, mesh, 3);
      ExpectSame(training, reference, "trained");
      ASSERT_OK(save(training.State(), SharedDir() + "/sharded"));
    }
    LoadInEveryWay(SharedDir() + "/sharded", reference);
    {
      // Each rank has other plain tensors.
      const DeviceMesh mesh = init_device_mesh("cpu", {4, 1}, {"pp", "dp"});
      Training training(MakeStage(mesh));
      Train(training, mesh, 3);
      ASSERT_OK(save(training.State(), SharedDir() + "/plain"));
    }
    LoadInEveryWay(SharedDir() + "/plain", reference);
  });
}

// The first stage loads from a folder that has only the files for that stage.
TEST(PipelineCheckpoint, AStageReadsOnlyItsNames) {
  RunRanks(4, [] {
    StartRankInDouble();
    const std::string path = SharedDir() + "/saved";
    const DeviceMesh mesh = TwoByTwo();
    Training training(Sharded(MakeStage(mesh), mesh["dp"]));
    Train(training, mesh, 2);
    ASSERT_OK(save(training.State(), path));
    if (get_rank() == 0) {
      int64_t num_removed = 0;
      for (const auto& entry : std::filesystem::directory_iterator(path)) {
        const std::string name = entry.path().filename();
        if (name.rfind("__2_", 0) != 0 && name.rfind("__3_", 0) != 0) continue;
        num_removed += std::filesystem::remove(entry.path()) ? 1 : 0;
      }
      EXPECT_EQ(num_removed, 2);
    }
    WaitForAllRanks();
    Training again(Sharded(Forget(MakeStage(mesh)), mesh["dp"]));
    StateDict state = again.State();
    const absl::Status loaded =
        load(state, path, {.process_group = mesh.get_group("dp")});
    EXPECT_EQ(loaded.ok(), mesh.get_local_rank("pp") == 0) << loaded;
  });
}

}  // namespace
}  // namespace fsdp::testing
