// SPDX-License-Identifier: Apache-2.0

#include "fsdp/prepare/prepare.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/forward.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/module/activation_checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/parallel_mlp.h"
#include "tests/fsdp/tiny_model.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "torch/optim/adamw.h"
#include "torch/optim/sgd.h"

namespace fsdp::testing {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::vector<std::string> GroupNames(const std::vector<FSDPModule>& groups) {
  std::vector<std::string> names;
  for (const FSDPModule& group : groups) names.push_back(group.name());
  return names;
}

TinyModel SameModel(bool tied = false) {
  torch::manual_seed(11);
  return TinyModel(TinyModelOptions{.tied = tied});
}

// This rank's slice from a step's batch.
torch::Tensor Slice(int64_t step) {
  return TinyBatch(step).chunk(get_world_size())[get_rank()];
}

// Trains both, `model` on slices of the batches for `reference`, and compares.
void ExpectTrainsAs(TinyModel& reference, TinyModel& model,
                    torch::optim::Optimizer& optimizer) {
  torch::optim::SGD whole(reference->parameters(), 0.1);
  for (int64_t step = 0; step < 3; ++step) {
    whole.zero_grad();
    TinyLoss(reference, TinyBatch(step)).backward();
    whole.step();
    optimizer.zero_grad();
    TinyLoss(model, Slice(step)).backward();
    optimizer.step();
  }
  const auto expected = reference->named_parameters();
  for (const auto& [name, parameter] : named_parameters(*model)) {
    EXPECT_TRUE(
        torch::allclose(parameter.full_tensor(), expected[name], 1e-4, 1e-5))
        << name;
  }
}

TEST(Prepare, TrainsWithAnExistingOptimizer) {
  RunRanks(4, [] {
    TinyModel reference = SameModel(), model = SameModel();
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    TrainConfig config;
    config.mesh.data_parallel_replicate_degree = 2;
    config.sharding.transformer_layer_cls_to_wrap =
        std::vector<std::string>{"GPT2Block"};
    absl::StatusOr<Prepared> training =
        prepare(model, config,
                {.type_names = {{"GPT2Block", "BlockImpl"}},
                 .optimizer = &optimizer,
                 .device = "cpu"});
    ASSERT_OK(training.status());
    EXPECT_EQ(training->mesh.shape(), (std::vector<int64_t>{2, 2}));
    EXPECT_THAT(training->mesh.mesh_dim_names(),
                ElementsAre("dp_replicate", "fsdp"));
    EXPECT_THAT(GroupNames(training->groups),
                ElementsAre("blocks.0", "blocks.1", "blocks.2", ""));
    EXPECT_TRUE(training->root == training->groups.back());
    EXPECT_EQ(training->checkpoints, nullptr);
    EXPECT_EQ(training->activation_offload, nullptr);
    EXPECT_OK(training->finish(3));
    ExpectTrainsAs(reference, model, optimizer);
  });
}

// A config's values for TrainingArguments.
LoopConfig SomeLoop() {
  LoopConfig loop;
  loop.steps = std::optional<int64_t>(8);
  loop.lr = std::optional(0.01);
  loop.weight_decay = std::optional(0.2);
  loop.beta2 = std::optional(0.95);
  loop.eps = std::optional(1e-6);
  loop.lr_schedule =
      std::optional(LrSchedule{.decay = LrDecay::kLinear, .warmup_steps = 2});
  return loop;
}

TEST(Prepare, TrainsWithTheConfigsNumbersAndSchedule) {
  RunRanks(2, [] {
    TinyModel reference = SameModel(), model = SameModel();
    // The same steps without prepare: AdamW with these numbers, and
    // transformers' linear schedule.
    torch::optim::AdamW whole(reference->parameters(),
                              torch::optim::AdamWOptions(0.01)
                                  .weight_decay(0.2)
                                  .betas({0.9, 0.95})
                                  .eps(1e-6));
    torch::optim::AdamW optimizer(model->parameters(), 3e-4);
    TrainConfig config;
    config.loop = SomeLoop();
    absl::StatusOr<Prepared> training = prepare(
        model, config,
        {.layers = {"Block"}, .optimizer = &optimizer, .device = "cpu"});
    ASSERT_OK(training.status());
    ASSERT_NE(training->learning_rate, nullptr);
    for (const double factor : {0.0, 0.5, 1.0, 5 / 6.0, 4 / 6.0}) {
      whole.param_groups()[0].options().set_lr(0.01 * factor);
      const auto step = static_cast<int64_t>(10 * factor);
      whole.zero_grad();
      TinyLoss(reference, TinyBatch(step)).backward();
      whole.step();
      optimizer.zero_grad();
      TinyLoss(model, Slice(step)).backward();
      optimizer.step();
      training->learning_rate->step();
    }
    const auto expected = reference->named_parameters();
    for (const auto& [name, parameter] : named_parameters(*model)) {
      EXPECT_TRUE(
          torch::allclose(parameter.full_tensor(), expected[name], 1e-4, 1e-5))
          << name;
    }
  });
}

TEST(Prepare, ASavedScheduleContinues) {
  RunRanks(2, [] {
    init_process_group();
    const std::string path = absl::StrCat(SharedDir(), "/step");
    const auto learning_rate = [](torch::optim::Optimizer& optimizer,
                                  const std::function<void(Prepared&)>& use) {
      TinyModel model = SameModel();
      optimizer.param_groups()[0].params() = model->parameters();
      TrainConfig config;
      config.loop = SomeLoop();
      absl::StatusOr<Prepared> training = prepare(
          model, config,
          {.layers = {"Block"}, .optimizer = &optimizer, .device = "cpu"});
      ASSERT_OK(training.status());
      use(*training);
    };
    torch::optim::AdamW first({torch::ones({1})}), second({torch::ones({1})});
    learning_rate(first, [&](Prepared& training) {
      for (int step = 0; step < 5; ++step) training.learning_rate->step();
      EXPECT_OK(fsdp::save({{"schedule", training.learning_rate}}, path));
    });
    learning_rate(second, [&](Prepared& training) {
      fsdp::StateDict state = {{"schedule", training.learning_rate}};
      EXPECT_OK(fsdp::load(state, path));
      EXPECT_DOUBLE_EQ(second.param_groups()[0].options().get_lr(), 0.005);
    });
  });
}

TEST(Prepare, AScheduleInEpochsNeedsNumSteps) {
  RunRanks(1, [] {
    TinyModel model = SameModel();
    torch::optim::AdamW optimizer(model->parameters());
    TrainConfig config;
    config.loop = SomeLoop();
    config.loop.steps = {};
    PrepareOptions options = {
        .layers = {"Block"}, .optimizer = &optimizer, .device = "cpu"};
    EXPECT_THAT(prepare(model, config, options).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("set PrepareOptions::num_steps")));
    options.num_steps = 4;
    absl::StatusOr<Prepared> training = prepare(model, config, options);
    ASSERT_OK(training.status());
    training->learning_rate->set_step(3);
    EXPECT_DOUBLE_EQ(optimizer.param_groups()[0].options().get_lr(), 0.005);
  });
}

TEST(Prepare, OffloadsActivationsIfTheConfigSaysSo) {
  RunRanks(2, [] {
    TinyModel reference = SameModel(), model = SameModel();
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    TrainConfig config;
    config.sharding.activation_cpu_offload = true;
    absl::StatusOr<Prepared> training = prepare(
        model, config,
        {.layers = {"Block"}, .optimizer = &optimizer, .device = "cpu"});
    ASSERT_OK(training.status());
    ASSERT_NE(training->activation_offload, nullptr);
    ExpectTrainsAs(reference, model, optimizer);
    EXPECT_GT(training->activation_offload->num_saved_bytes(), 0u);
  });
}

TEST(Prepare, AModuleMayHaveSeparateOptions) {
  RunRanks(2, [] {
    TinyModel reference = SameModel(), model = SameModel();
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    std::set<std::string> names;
    const auto shard_options = [&names](const std::string& name,
                                        const torch::nn::Module& /*module*/,
                                        FullyShardOptions& options) {
      names.insert(name);
      options.mesh.reset();  // which stays the config's
      if (name != "blocks.1") return;
      options.shard_placement_fn =
          [](const at::Tensor& parameter) -> std::optional<Shard> {
        if (parameter.dim() < 2) return std::nullopt;
        return Shard(1);
      };
    };
    ASSERT_OK(prepare(model, TrainConfig(),
                      {.layers = {"BlockImpl"},
                       .optimizer = &optimizer,
                       .shard_options = shard_options,
                       .device = "cpu"})
                  .status());
    EXPECT_THAT(names,
                UnorderedElementsAre("blocks.0", "blocks.1", "blocks.2", ""));
    for (const auto& [name, parameter] : named_parameters(*model)) {
      const bool is_own =
          name.rfind("blocks.1.", 0) == 0 && parameter.to_local().dim() == 2;
      EXPECT_THAT(parameter.placements(), ElementsAre(Shard(is_own ? 1 : 0)))
          << name;
    }
    ExpectTrainsAs(reference, model, optimizer);
  });
}

TEST(Prepare, WrapsByTheConfigsPolicy) {
  RunRanks(2, [] {
    const auto groups = [](AutoWrapPolicy policy, bool tied = false) {
      TinyModel model = SameModel(tied);
      TrainConfig config;
      config.sharding.auto_wrap_policy = policy;
      config.sharding.min_num_params = 800;
      const absl::StatusOr<Prepared> training =
          prepare(model, config, {.layers = {"BlockImpl"}, .device = "cpu"});
      EXPECT_OK(training.status());
      return training.ok() ? GroupNames(training->groups)
                           : std::vector<std::string>();
    };
    EXPECT_THAT(groups(AutoWrapPolicy::kNoWrap), ElementsAre(""));
    EXPECT_THAT(groups(AutoWrapPolicy::kTransformerBasedWrap),
                ElementsAre("blocks.0", "blocks.1", "blocks.2", ""));
    EXPECT_THAT(groups(AutoWrapPolicy::kDirectChildren),
                ElementsAre("tokens", "positions", "blocks.0", "blocks.1",
                            "blocks.2", "norm", "head", ""));
    // Both ends of the tie go to the module that holds them: the root.
    EXPECT_THAT(groups(AutoWrapPolicy::kDirectChildren, /*tied=*/true),
                ElementsAre("positions", "blocks.0", "blocks.1", "blocks.2",
                            "norm", ""));
    EXPECT_GT(groups(AutoWrapPolicy::kSizeBasedWrap).size(), 3u);
  });
}

TEST(Prepare, ShardsWithinANodeAndReshardsToFewer) {
  RunRanks(4, [] {
    TinyModel reference = SameModel(), model = SameModel();
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    TrainConfig config;
    config.mesh.data_parallel_shard_degree = kShardWithinNode;
    config.sharding.reshard_after_forward = ReshardSetting(int64_t{2});
    // All four ranks are on this machine, so there are no copies.
    const absl::StatusOr<Prepared> training = prepare(
        model, config,
        {.layers = {"Block"}, .optimizer = &optimizer, .device = "cpu"});
    ASSERT_OK(training.status());
    EXPECT_EQ(training->mesh.shape(), (std::vector<int64_t>{4}));
    ExpectTrainsAs(reference, model, optimizer);
  });
}

TEST(Prepare, LeavesIgnoredModulesWhole) {
  RunRanks(2, [] {
    TinyModel model = SameModel();
    const torch::Tensor norm = model->norm->weight;
    TrainConfig config;
    config.sharding.ignored_modules = std::string("norm|blocks\\.1");
    ASSERT_OK(prepare(model, config, {.layers = {"BlockImpl"}, .device = "cpu"})
                  .status());
    const auto parameters = model->named_parameters();
    EXPECT_TRUE(parameters["norm.weight"].is_same(norm));
    EXPECT_FALSE(find_fsdp_module(*model->blocks[1]).has_value());
    EXPECT_TRUE(find_fsdp_module(*model->blocks[0]).has_value());
  });
}

TEST(Prepare, CastsAndComputesAsThePrecisionSays) {
  RunRanks(2, [] {
    TinyModel model = SameModel();
    model->to(torch::kBFloat16);
    TrainConfig config;
    config.precision.param_dtype = dcp::DType::kBFloat16;
    config.precision.reduce_dtype = dcp::DType::kFloat32;
    config.precision.output_dtype = dcp::DType::kFloat32;
    config.sharding.cpu_offload = true;
    ASSERT_OK(prepare(model, config, {.layers = {"BlockImpl"}, .device = "cpu"})
                  .status());
    EXPECT_EQ(model->parameters()[0].scalar_type(), torch::kFloat);
    const torch::Tensor logits = fsdp::forward(model, Slice(0).narrow(1, 0, 7));
    EXPECT_EQ(logits.scalar_type(), torch::kFloat);
    logits.sum().backward();
    EXPECT_EQ(model->parameters()[0].grad().scalar_type(), torch::kFloat);

    // A model with a given precision keeps it if the config does not set one.
    TinyModel half = SameModel();
    half->to(torch::kBFloat16);
    ASSERT_OK(
        prepare(half, TrainConfig(), {.layers = {"BlockImpl"}, .device = "cpu"})
            .status());
    EXPECT_EQ(half->parameters()[0].scalar_type(), torch::kBFloat16);
  });
}

// Holds layers so that they can be computed again.
struct LayersImpl : torch::nn::Module {
  LayersImpl() {
    register_module("layers", layers);
    for (int i = 0; i < 5; ++i) {
      held.emplace_back(6, 6);
      layers->push_back(held.back().ptr());
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    for (auto& layer : held) x = layer(x);
    return x;
  }
  torch::nn::ModuleList layers;
  std::vector<Checkpointed<torch::nn::LinearImpl>> held;
};
TORCH_MODULE(Layers);

TEST(Prepare, CheckpointsEveryNthLayer) {
  RunRanks(2, [] {
    Layers model;
    TrainConfig config;
    config.sharding.activation_checkpointing = 2;
    ASSERT_OK(
        prepare(model, config, {.layers = {"LinearImpl"}, .device = "cpu"})
            .status());
    std::vector<bool> checkpointed;
    for (const auto& layer : *model->layers) {
      checkpointed.push_back(is_checkpointed(*layer));
    }
    EXPECT_THAT(checkpointed, ElementsAre(false, true, false, true, false));
    model(torch::randn({3, 6})).sum().backward();

    // A model that enables checkpointing itself.
    TinyModel own = SameModel();
    std::vector<const torch::nn::Module*> told;
    config.sharding.activation_checkpointing = 1;
    ASSERT_OK(prepare(own, config,
                      {.layers = {"BlockImpl"},
                       .checkpoint_layer =
                           [&](torch::nn::Module& layer) {
                             told.push_back(&layer);
                             EXPECT_FALSE(find_fsdp_module(layer).has_value());
                           },
                       .device = "cpu"})
                  .status());
    EXPECT_THAT(told, ElementsAre(own->blocks[0].get(), own->blocks[1].get(),
                                  own->blocks[2].get()));
  });
}

TEST(Prepare, CutsLayersBeforeItShardsThem) {
  RunRanks(4, [] {
    torch::manual_seed(7);
    Mlp whole(8, nullptr);
    Mlp model(8, nullptr);
    {
      const torch::NoGradGuard no_grad;
      for (const auto& item : model->named_parameters()) {
        item.value().copy_(whole->named_parameters()[item.key()]);
      }
    }
    TrainConfig config;
    config.mesh.tensor_parallel_degree = 2;
    config.sharding.auto_wrap_policy = AutoWrapPolicy::kNoWrap;
    std::optional<DeviceMesh> tp;
    PrepareOptions options = {.device = "cpu"};
    options.parallelize = [&](torch::nn::Module& module,
                              const DeviceMesh& mesh) {
      tp = mesh;
      const Mlp part = Parallelize(whole, mesh);
      auto& mlp = *module.as<MlpImpl>();
      mlp.up = part->up;
      mlp.down = part->down;
      mlp.group = part->group;
      ChildRegistry(mlp)["up"] = part->up.ptr();
      ChildRegistry(mlp)["down"] = part->down.ptr();
    };
    options.tensor_parallel_fn = [&](const std::string& name,
                                     const at::Tensor& tensor) {
      return ParallelOptions(whole, *tp, *tp).tensor_parallel_fn(name, tensor);
    };
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    options.optimizer = &optimizer;
    const absl::StatusOr<Prepared> training = prepare(model, config, options);
    ASSERT_OK(training.status());
    EXPECT_THAT(training->mesh.mesh_dim_names(), ElementsAre("fsdp"));
    EXPECT_EQ(training->dims->get_mesh("tp"), *tp);
    const auto expected = whole->named_parameters();
    for (const auto& [name, parameter] : named_parameters(*model)) {
      EXPECT_TRUE(parameter.full_tensor().equal(expected[name])) << name;
    }
    EXPECT_TRUE(optimizer.param_groups()[0].params()[0].is_same(
        model->parameters()[0]));
  });
}

TEST(Prepare, UsesTheProgramsMeshAndParallelisms) {
  RunRanks(2, [] {
    TinyModel reference = SameModel(), model = SameModel();
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"fsdp"});
    TrainConfig config;
    config.mesh.data_parallel_replicate_degree = 7;  // is not read
    config.sharding.auto_wrap_policy = AutoWrapPolicy::kNoWrap;
    int num_calls = 0;
    const absl::StatusOr<Prepared> training =
        prepare(model, config,
                {.optimizer = &optimizer,
                 .mesh = mesh,
                 .parallelize = [&](torch::nn::Module& module,
                                    const DeviceMesh& given) {
                   ++num_calls;
                   EXPECT_EQ(given, mesh);
                   EXPECT_FALSE(find_fsdp_module(module).has_value());
                 }});
    ASSERT_OK(training.status());
    EXPECT_EQ(num_calls, 1);
    EXPECT_EQ(training->mesh, mesh);
    EXPECT_FALSE(training->dims.has_value());
    EXPECT_EQ(dtensor_of(model->parameters()[0])->device_mesh(), mesh);
    ExpectTrainsAs(reference, model, optimizer);
  });
}

}  // namespace
}  // namespace fsdp::testing
