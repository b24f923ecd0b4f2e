// SPDX-License-Identifier: Apache-2.0
// Mistakes that prepare refuses before it changes anything; each error names
// the place in the config.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fsdp/engine/lazy_key.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/prepare/prepare.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/tiny_model.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "torch/optim/sgd.h"

namespace fsdp::testing {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

template <typename T>
Setting<T> At(T value) {
  return Setting<T>(
      std::move(value),
      SourceLocation{.file = "run.toml", .line = 7, .key = "some.key"});
}

struct Case {
  std::string what;  // part of the message
  std::function<void(TrainConfig&)> change;
};

std::vector<Case> Cases() {
  using Words = std::vector<std::string>;
  return {
      {"wraps the layers",
       [](TrainConfig& c) {
         c.sharding.auto_wrap_policy =
             At(AutoWrapPolicy::kTransformerBasedWrap);
       }},
      {"names Blok, but no module of the ",
       [](TrainConfig& c) {
         c.sharding.transformer_layer_cls_to_wrap = At(Words{"Blok"});
       }},
      {"is 0, not positive",
       [](TrainConfig& c) {
         c.sharding.auto_wrap_policy = AutoWrapPolicy::kSizeBasedWrap;
         c.sharding.min_num_params = At(int64_t{0});
       }},
      {"is not a regular expression",
       [](TrainConfig& c) {
         c.sharding.ignored_modules = At(std::string("blocks.("));
       }},
      {"does not match the name of any module",
       [](TrainConfig& c) {
         c.sharding.ignored_modules = At(std::string("block"));
       }},
      {"matches the model itself",
       [](TrainConfig& c) {
         c.sharding.ignored_modules = At(std::string(".*"));
       }},
      {"its calls cannot be intercepted",
       [](TrainConfig& c) {
         c.sharding.transformer_layer_cls_to_wrap = Words{"BlockImpl"};
         c.sharding.activation_checkpointing = At(int64_t{1});
       }},
      {"nothing says which modules are layers",
       [](TrainConfig& c) {
         c.sharding.activation_checkpointing = At(int64_t{1});
       }},
      {"does not divide the number of shards, 2",
       [](TrainConfig& c) {
         c.sharding.reshard_after_forward = At(ReshardSetting(int64_t{3}));
       }},
      {"is int64, not float32",
       [](TrainConfig& c) { c.precision.dtype = At(dcp::DType::kInt64); }},
      {"give PrepareOptions::parallelize_plan",
       [](TrainConfig& c) { c.mesh.tensor_parallel_degree = At(int64_t{2}); }},
      {"keep_modules (fsdp/parallel/pipeline/README.md)",
       [](TrainConfig& c) {
         c.mesh.pipeline_parallel_degree = At(int64_t{2});
       }},
      {"has no fsdp::GroupedExperts",
       [](TrainConfig& c) { c.mesh.expert_parallel_degree = At(int64_t{2}); }},
      {"does not divide 2 ranks",
       [](TrainConfig& c) { c.mesh.context_parallel_degree = At(int64_t{3}); }},
      {"3",
       [](TrainConfig& c) {
         c.mesh.data_parallel_shard_degree = At(int64_t{3});
       }},
      {"none.pt",
       [](TrainConfig& c) {
         c.checkpoint.initial_load_path = At(std::string("none.pt"));
       }},
  };
}

TEST(PrepareRefuses, WithThePlaceInTheConfig) {
  RunRanks(2, [] {
    for (const Case& c : Cases()) {
      SCOPED_TRACE(c.what);
      TinyModel model;
      torch::optim::SGD optimizer(model->parameters(), 0.1);
      const torch::Tensor first = model->parameters()[0];
      TrainConfig config;
      config.sharding.auto_wrap_policy = AutoWrapPolicy::kNoWrap;
      c.change(config);
      const bool needs_types =
          !config.sharding.transformer_layer_cls_to_wrap->empty();
      if (needs_types) {
        config.sharding.auto_wrap_policy =
            AutoWrapPolicy::kTransformerBasedWrap;
      }
      const absl::Status status =
          prepare(model, config, {.optimizer = &optimizer, .device = "cpu"})
              .status();
      EXPECT_FALSE(status.ok());
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("run.toml:7: some.key"), HasSubstr(c.what)));
      if (!config.checkpoint.initial_load_path->empty()) continue;
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_TRUE(model->parameters()[0].is_same(first));
      // None of these calls changed the model.
      config = TrainConfig();
      EXPECT_OK(prepare(model, config,
                        {.layers = {"BlockImpl"},
                         .optimizer = &optimizer,
                         .device = "cpu"})
                    .status());
    }
  });
}

TEST(PrepareRefuses, MistakesInTheProgram) {
  RunRanks(2, [] {
    const auto error = [](TinyModel model, const PrepareOptions& options) {
      const absl::Status status =
          prepare(model, TrainConfig(), options).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      return std::string(status.message());
    };
    EXPECT_THAT(error(TinyModel(), {.layers = {"Blok"}, .device = "cpu"}),
                HasSubstr("PrepareOptions::layers names Blok"));
    TinyModel other;
    torch::optim::SGD optimizer(other->parameters(), 0.1);
    EXPECT_THAT(error(TinyModel(), {.layers = {"BlockImpl"},
                                    .optimizer = &optimizer,
                                    .device = "cpu"}),
                HasSubstr("optimizer: parameter 0 of group 0"));
    const auto do_nothing = [](torch::nn::Module&, const DeviceMesh&) {};
    const ParallelizePlan plan = {{"head", ColwiseParallel()}};
    EXPECT_THAT(error(TinyModel(), {.layers = {"BlockImpl"},
                                    .parallelize_plan = plan,
                                    .parallelize = do_nothing,
                                    .device = "cpu"}),
                HasSubstr("has parallelize and parallelize_plan"));
    EXPECT_THAT(
        error(TinyModel(), {.layers = {"BlockImpl"},
                            .parallelize_plan = plan,
                            .mesh = init_device_mesh("cpu", {2}, {"fsdp"}),
                            .device = "cpu"}),
        HasSubstr("call parallelize_module in "
                  "PrepareOptions::parallelize"));
    TinyModel sharded;
    EXPECT_OK(prepare(sharded, TrainConfig(),
                      {.layers = {"BlockImpl"}, .device = "cpu"})
                  .status());
    EXPECT_THAT(error(sharded, {.layers = {"BlockImpl"}, .device = "cpu"}),
                HasSubstr("is sharded already"));
    TinyModel scalar;
    scalar->register_parameter("scale", torch::ones({}));
    EXPECT_THAT(error(scalar, {.layers = {"BlockImpl"}, .device = "cpu"}),
                HasSubstr("'scale' has no dimension to shard"));
    TinyModel mixed;
    {
      const MetaDeviceGuard on_meta;
      mixed->register_parameter("extra", torch::ones({3}));
    }
    EXPECT_THAT(error(mixed, {.layers = {"BlockImpl"}, .device = "cpu"}),
                HasSubstr("some parameters and buffers"));
  });
}

}  // namespace
}  // namespace fsdp::testing
