// SPDX-License-Identifier: Apache-2.0
// An AveragedModel in checkpoints.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "fsdp/averaging/averaged_model.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state_dict.h"
#include "fsdp/mesh/dtensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/reader_pair.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "torch/types.h"

namespace fsdp::optim {
namespace {

using absl::StatusCode;
using dcp::testing::StatusIs;
using ::testing::AllOf;
using testing::Both;
using testing::Close;
using ::testing::HasSubstr;
using testing::MakeBoth;
using testing::Pair;
using testing::RunRanks;
using testing::StartRankInDouble;
using torch::Tensor;

// The model after `num` updates by hand, and its average.
std::shared_ptr<AveragedModel> Train(Pair& model, int begin, int end,
                                     std::shared_ptr<AveragedModel> average) {
  const torch::NoGradGuard no_grad;
  for (int step = begin; step < end; ++step) {
    for (Tensor& parameter : model->parameters()) {
      parameter.mul_(0.5).add_(step);
    }
    average->update_parameters(*model);
  }
  return average;
}

std::shared_ptr<AveragedModel> MakeAverage(const Pair& model) {
  return std::make_shared<AveragedModel>(
      *model, AveragedModelOptions{.avg_fn = get_ema_avg_fn(0.75)});
}

void SaveOn(int world_size, const std::string& path) {
  RunRanks(world_size, [&] {
    StartRankInDouble();
    Both both = MakeBoth();
    const auto average = Train(both.model, 0, 4, MakeAverage(both.model));
    const StateDict state = {{"model", *get_model_state_dict(*both.model)},
                             {"ema", average}};
    EXPECT_OK(save(state, path));
  });
}

void ResumeOn(int world_size, const std::string& path) {
  RunRanks(world_size, [&] {
    StartRankInDouble();
    Both both = MakeBoth();
    const torch::NoGradGuard no_grad;
    for (Tensor& p : both.model->parameters()) p.fill_(-1);
    const auto average = MakeAverage(both.model);
    StateDict state = {{"model", *get_model_state_dict(*both.model)},
                       {"ema", average}};
    EXPECT_OK(load(state, path));
    EXPECT_EQ(average->n_averaged(), 4);
    Train(both.model, 4, 7, average);
    const auto expected =
        Train(both.reference, 0, 7, MakeAverage(both.reference));
    const StateDict want = *expected->state_dict();
    const StateDict got = *average->state_dict();
    for (const auto& [key, value] : got) {
      if (key == "n_averaged") continue;
      EXPECT_TRUE(Close(value.get_if<DTensor>()->full_tensor(),
                        *want.find(key)->get_if<Tensor>()))
          << key;
    }
    EXPECT_EQ(average->n_averaged(), 7);
  });
}

TEST(AveragesCheckpoint, ResumesOnOtherNumbersOfRanks) {
  const std::string path = ::testing::TempDir() + "/averages";
  SaveOn(3, path);
  ResumeOn(1, path);
  ResumeOn(2, path);
  SaveOn(1, path);
  ResumeOn(3, path);
}

TEST(AveragesCheckpoint, LoadsWholeTensorsAndListsMismatches) {
  RunRanks(2, [] {
    StartRankInDouble();
    Both both = MakeBoth();
    const auto average = MakeAverage(both.model);
    const auto whole = Train(both.reference, 0, 2, MakeAverage(both.reference));
    StateDict state = *whole->state_dict();
    EXPECT_OK(average->load_state_dict(state));
    EXPECT_EQ(average->n_averaged(), 2);
    EXPECT_TRUE(Close(average->state_dict()
                          ->find("module.b.weight")
                          ->get_if<DTensor>()
                          ->full_tensor(),
                      *state.find("module.b.weight")->get_if<Tensor>()));
    state.erase("module.a.bias");
    EXPECT_THAT(average->load_state_dict(state),
                StatusIs(StatusCode::kNotFound, HasSubstr("module.a.bias")));
    state["module.a.bias"] = torch::zeros({2});
    state["module.c"] = torch::zeros({2});
    EXPECT_THAT(average->load_state_dict(state),
                StatusIs(StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("unexpected: module.c"),
                               HasSubstr("module.a.bias has shape [2]"))));
    EXPECT_EQ(average->n_averaged(), 2);
  });
}

TEST(AveragesCheckpoint, NamesEntriesThatACheckpointLacks) {
  const std::string path = ::testing::TempDir() + "/without_averages";
  RunRanks(2, [&] {
    StartRankInDouble();
    Both both = MakeBoth();
    StateDict state = {{"model", *get_model_state_dict(*both.model)}};
    EXPECT_OK(save(state, path));
    state["ema"] = MakeAverage(both.model);
    EXPECT_THAT(load(state, path),
                StatusIs(StatusCode::kNotFound, HasSubstr("ema.n_averaged")));
  });
}

}  // namespace
}  // namespace fsdp::optim
