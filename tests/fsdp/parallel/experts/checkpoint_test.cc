// SPDX-License-Identifier: Apache-2.0
// Checkpoints with experts and dense parameters on two meshes: each way to lay
// them out loads the checkpoints that the others saved.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state_dict.h"
#include "gtest/gtest.h"
#include "tests/fsdp/parallel/experts/tiny_moe.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "torch/optim/adamw.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

MoEArgs Args() {
  MoEArgs args = PlainArgs();
  args.load_balance_coeff = 0.1;
  return args;
}

// One model and an optimizer; without degrees, on this process alone.
struct Training {
  explicit Training(const std::optional<ParallelDegrees>& degrees) {
    if (degrees.has_value()) {
      dims = init_parallel_dims(*degrees, "cpu");
      ShardMoE(model, *dims);
    }
    optimizer = std::make_unique<torch::optim::AdamW>(
        model->parameters(), torch::optim::AdamWOptions(1e-2));
  }

  // The ranks in the loss mesh divide the tokens.
  void Step(int64_t step) {
    std::optional<DeviceMesh> mesh;
    if (dims.has_value()) mesh = dims->get_mesh("loss");
    const int64_t share = kTokens / (mesh.has_value() ? mesh->size() : 1);
    const int64_t rank = mesh.has_value() ? mesh->get_local_rank() : 0;
    optimizer->zero_grad();
    ComputeLoss(model, MakeBatch(step, share * rank, share)).backward();
    update_expert_bias(*model, mesh);
    optimizer->step();
  }

  StateDict State() {
    auto parts = get_state_dict(*model, *optimizer);
    EXPECT_OK(parts.status());
    return {{"model", std::move(parts->first)},
            {"optim", std::move(parts->second)}};
  }
  void Load(const std::string& path) {
    StateDict state = State();
    ASSERT_OK(load(state, path));
    ASSERT_OK(set_state_dict(*model, *optimizer,
                             *state["model"].get_if<StateDict>(),
                             *state["optim"].get_if<StateDict>())
                  .status());
  }

  std::vector<std::pair<std::string, at::Tensor>> Weights() {
    std::vector<std::pair<std::string, at::Tensor>> weights;
    for (const auto& item : model->named_parameters()) {
      const std::optional<DTensor> sharded = dtensor_of(item.value());
      weights.emplace_back(item.key(), sharded.has_value()
                                           ? sharded->full_tensor()
                                           : item.value().detach());
    }
    for (const auto& item : model->named_buffers()) {
      weights.emplace_back(item.key(), item.value());
    }
    return weights;
  }

  TinyMoE model{Args()};
  std::optional<ParallelDims> dims;
  std::unique_ptr<torch::optim::AdamW> optimizer;
};

void ExpectEqual(Training& a, Training& b, const std::string& what) {
  const auto expected = b.Weights();
  const auto actual = a.Weights();
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(
        torch::allclose(actual[i].second, expected[i].second, 1e-10, 1e-12))
        << what << ": " << actual[i].first;
  }
}

TEST(ExpertCheckpoints, LoadOnEveryOtherMesh) {
  RunRanks(4, [] {
    StartRank();
    const std::string path = SharedDir() + "/checkpoint";
    Training saved(ParallelDegrees{.ep = 2});
    for (int64_t step = 0; step < 2; ++step) saved.Step(step);
    ASSERT_OK(save(saved.State(), path));
    saved.Step(2);

    const std::vector<std::pair<std::string, ParallelDegrees>> others = {
        {"ep 2", {.ep = 2}},
        {"ep 4", {.ep = 4}},
        {"no ep", {}},
        {"ep 2 in tp 2", {.tp = 2, .ep = 2}},
        {"ep 2, etp 2", {.tp = 2, .ep = 2, .etp = 2}},
        {"experts cut by tp 2", {.tp = 2}}};
    for (const auto& [what, degrees] : others) {
      Training resumed(degrees);
      resumed.Load(path);
      resumed.Step(2);
      ExpectEqual(resumed, saved, what);
    }
    // On one process, which reads alone.
    Training alone(std::nullopt);
    StateDict state = alone.State();
    ASSERT_OK(
        load(state, path,
             {.process_group = new_subgroups({{0}, {1}, {2}, {3}}, "alone")}));
    ASSERT_OK(set_state_dict(*alone.model, *alone.optimizer,
                             *state["model"].get_if<StateDict>(),
                             *state["optim"].get_if<StateDict>())
                  .status());
    alone.Step(2);
    ExpectEqual(alone, saved, "one process");
    EXPECT_TRUE(alone.model->layer(0).moe->expert_bias.any().item<bool>());
  });
}

// A mesh with parts of experts writes; one without reads.
TEST(ExpertCheckpoints, JoinsPartsOfExperts) {
  RunRanks(4, [] {
    StartRank();
    const std::string path = SharedDir() + "/checkpoint";
    Training saved(ParallelDegrees{.tp = 2, .ep = 2, .etp = 2});
    saved.Step(0);
    ASSERT_OK(save(saved.State(), path));
    Training resumed(ParallelDegrees{.ep = 4});
    resumed.Load(path);
    ExpectEqual(resumed, saved, "after loading");
  });
}

}  // namespace
}  // namespace fsdp::testing
