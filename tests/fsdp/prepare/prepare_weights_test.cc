// SPDX-License-Identifier: Apache-2.0
// A prepared model's initial state, and the files at the end.

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state_dict.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/prepare/prepare.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/tiny_model.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"

namespace fsdp::testing {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

TinyModel MakeModel(uint64_t seed) {
  torch::manual_seed(seed);
  return TinyModel();
}

TinyModel MetaModel() {
  const MetaDeviceGuard on_meta;
  return TinyModel();
}

PrepareOptions OnCpu() { return {.layers = {"BlockImpl"}, .device = "cpu"}; }

void ExpectEqual(const TinyModel& model, const TinyModel& expected) {
  const auto values = expected->named_parameters();
  for (const auto& [name, parameter] : named_parameters(*model)) {
    EXPECT_TRUE(parameter.full_tensor().equal(values[name])) << name;
  }
}

// A step as a loop saves it.
fsdp::StateDict StepState(TinyModel& model) {
  return {{"model", *fsdp::get_model_state_dict(*model)}, {"step", 1}};
}

TEST(PrepareWeights, BeginWithAModelFileOrAStep) {
  RunRanks(2, [] {
    init_process_group();
    TinyModel saved = MakeModel(1);
    const std::string bare = SharedDir() + "/bare";
    const std::string step = SharedDir() + "/step";
    ASSERT_OK(fsdp::save(*fsdp::get_model_state_dict(*saved), bare));
    ASSERT_OK(fsdp::save(StepState(saved), step));
    for (const bool from_rank0 : {false, true}) {
      for (const std::string& path : {bare, step}) {
        for (const bool on_meta : {false, true}) {
          SCOPED_TRACE(absl::StrCat(path, from_rank0, on_meta));
          TinyModel model = on_meta ? MetaModel() : MakeModel(2);
          TrainConfig config;
          config.checkpoint.initial_load_path = path;
          config.checkpoint.cpu_ram_efficient_loading = from_rank0;
          ASSERT_OK(prepare(model, config, OnCpu()).status());
          ExpectEqual(model, saved);
        }
      }
    }
  });
}

TEST(PrepareWeights, AreRank0sWithCpuRamEfficientLoading) {
  RunRanks(2, [] {
    init_process_group();
    TrainConfig config;
    config.checkpoint.cpu_ram_efficient_loading = true;
    // The other ranks have memory only for their parts, or weights that do not
    // count.
    for (const bool on_meta : {true, false}) {
      TinyModel model = get_rank() == 0 ? MakeModel(1)
                        : on_meta       ? MetaModel()
                                        : MakeModel(2);
      ASSERT_OK(prepare(model, config, OnCpu()).status());
      ExpectEqual(model, MakeModel(1));
    }
    TinyModel mixed = get_rank() == 0 ? MakeModel(1) : MetaModel();
    EXPECT_THAT(prepare(mixed, TrainConfig(), OnCpu()).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("on some ranks and not on others")));
  });
}

torch::nn::Sequential MetaLayers() {
  const MetaDeviceGuard on_meta;
  return torch::nn::Sequential(
      torch::nn::Linear(6, 5),
      torch::nn::LayerNorm(torch::nn::LayerNormOptions({5})),
      torch::nn::Linear(5, 7));
}

TEST(PrepareWeights, AreInitialisedForAMetaModel) {
  RunRanks(2, [] {
    TrainConfig config;
    config.sharding.auto_wrap_policy = AutoWrapPolicy::kDirectChildren;
    config.loop.seed = std::optional<int64_t>(5);
    torch::nn::Sequential a = MetaLayers(), b = MetaLayers();
    ASSERT_OK(prepare(a, config, OnCpu()).status());
    ASSERT_OK(prepare(b, config, OnCpu()).status());
    for (size_t i = 0; i < parameters(*a).size(); ++i) {
      const torch::Tensor value = parameters(*a)[i].full_tensor();
      EXPECT_TRUE(value.isfinite().all().item<bool>());
      EXPECT_TRUE(value.equal(parameters(*b)[i].full_tensor()));
    }
  });
}

TEST(PrepareWeights, ForUnknownModulesNeedInitWeights) {
  RunRanks(2, [] {
    EXPECT_THAT(prepare(MetaModel(), TrainConfig(), OnCpu()).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("give PrepareOptions::init_weights")));
    PrepareOptions options = OnCpu();
    options.init_weights = [](torch::nn::Module& module) {
      const torch::NoGradGuard no_grad;
      for (const auto& parameter : module.parameters()) parameter.fill_(3);
    };
    TinyModel model = MetaModel();
    ASSERT_OK(prepare(model, TrainConfig(), options).status());
    EXPECT_TRUE((parameters(*model)[0].full_tensor() == 3).all().item<bool>());
  });
}

TEST(PrepareWeights, AreLeftToTheResumedStep) {
  RunRanks(2, [] {
    init_process_group();
    TrainConfig config;
    config.checkpoint.folder = SharedDir() + "/run";
    config.checkpoint.interval = 2;
    config.checkpoint.keep_latest_k = 1;
    config.checkpoint.state_dict_type = StateDictType::kFullStateDict;
    config.checkpoint.export_dtype = dcp::DType::kBFloat16;
    TinyModel model = MakeModel(1);
    {
      absl::StatusOr<Prepared> training = prepare(model, config, OnCpu());
      ASSERT_OK(training.status());
      EXPECT_FALSE(training->latest_step.has_value());
      ASSERT_NE(training->checkpoints, nullptr);
      EXPECT_TRUE(*training->checkpoints->should_save(2));
      EXPECT_FALSE(*training->checkpoints->should_save(3));
      ASSERT_OK(training->checkpoints->save(1, StepState(model)));
      ASSERT_OK(training->checkpoints->save(2, StepState(model)));
      ASSERT_OK(training->finish(2));
      EXPECT_EQ(training->full_model_path,
                SharedDir() + "/run/model.safetensors");
      std::ifstream file(training->full_model_path, std::ios::binary);
      const std::string text((std::istreambuf_iterator<char>(file)),
                             std::istreambuf_iterator<char>());
      EXPECT_THAT(text, HasSubstr("\"head.weight\""));
      EXPECT_THAT(text, HasSubstr("BF16"));
    }
    config.checkpoint.initial_load_path = std::string("is not read");
    TinyModel again = MetaModel();
    absl::StatusOr<Prepared> training = prepare(again, config, OnCpu());
    ASSERT_OK(training.status());
    EXPECT_EQ(training->latest_step, 2);
    fsdp::StateDict state = StepState(again);
    ASSERT_OK(training->checkpoints->resume(state).status());
    ExpectEqual(again, MakeModel(1));
  });
}

}  // namespace
}  // namespace fsdp::testing
