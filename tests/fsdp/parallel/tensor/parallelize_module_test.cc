// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/tensor/parallelize_module.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fsdp/engine/lazy_key.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/examples/train_llama/model.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/collective_order.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/module/init_defaults.h"
#include "fsdp/module/materialize.h"
#include "fsdp/optim/clip_grad_norm.h"
#include "fsdp/parallel/activation.h"
#include "fsdp/parallel/tensor/plan_match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/parallel/llama.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/optim/adamw.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParallelizeModule, TrainsAsOneProcess) {
  for (const int ranks : {2, 3}) {
    RunRanks(ranks, [ranks] {
      StartRankInDouble();
      const DeviceMesh mesh = init_device_mesh("cpu", {1, ranks}, {"dp", "tp"});
      for (const ParallelizePlan& plan : {TensorPlan(), SequencePlan()}) {
        llama::Llama model = MakeLlama();
        parallelize_module(model, mesh["tp"], plan);
        fully_shard(model, {.mesh = mesh["dp"]});
        ExpectTrainsAsOne(model, MakeLlama(), 0, 4);
      }
    });
  }
}

TEST(ParallelizeModule, ComposesWithFullyShard) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    for (const ParallelizePlan& plan : {TensorPlan(), SequencePlan()}) {
      llama::Llama model = MakeLlama();
      parallelize_module(model, mesh["tp"], plan);
      for (const auto& block : *model->layers) {
        fully_shard(block, {.mesh = mesh["dp"]});
      }
      fully_shard(model, {.mesh = mesh["dp"]});
      ExpectTrainsAsOne(model, MakeLlama(), 2 * mesh.get_local_rank("dp"), 2);
    }
  });
}

TEST(ParallelizeModule, RecomputesBlocks) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    llama::Llama model = MakeLlama();
    parallelize_module(model, mesh["tp"], SequencePlan());
    apply_activation_checkpointing(*model, [](const torch::nn::Module& m) {
      return m.as<llama::BlockImpl>() != nullptr;
    });
    for (const auto& block : *model->layers) {
      fully_shard(block, {.mesh = mesh["dp"]});
    }
    fully_shard(model, {.mesh = mesh["dp"]});
    ExpectTrainsAsOne(model, MakeLlama(), 2 * mesh.get_local_rank("dp"), 2);
  });
}

TEST(ParallelizeModule, SizesNeedNotDivide) {
  RunRanks(3, [] {
    StartRankInDouble();
    const DeviceMesh tp = init_device_mesh("cpu", {3}, {"tp"});
    llama::Llama model = MakeLlama();
    parallelize_module(model, tp, SequencePlan());
    ExpectTrainsAsOne(model, MakeLlama(), 0, 4, /*seq_len=*/7);
  });
}

TEST(ParallelizeModule, TiedWeightsHaveAStyleForEachUse) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    llama::Llama model = MakeLlama(/*tied=*/true);
    ParallelizePlan plan = TensorPlan();
    plan.pop_back();
    parallelize_module(model, tp, plan);
    ExpectTrainsAsOne(model, MakeLlama(/*tied=*/true), 0, 4);
    llama::Llama other = MakeLlama(/*tied=*/true);
    other->register_module("head", torch::nn::Linear(16, kVocab))->weight =
        other->embed_tokens->weight;
    ParameterRegistry(*other->children().back())["weight"] =
        other->embed_tokens->weight;
    EXPECT_THAT(ThrownMessage([&] {
                  parallelize_module(other, tp,
                                     {{"embed_tokens", ColwiseParallel()},
                                      {"head", ColwiseParallel()}});
                }),
                HasSubstr("'head.weight' is tied to 'embed_tokens.weight'"));
  });
}

TEST(ParallelizeModule, RanksThatDifferAreNamed) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const auto in_step = HasSubstr("rank ");
    torch::nn::Linear other(4, 4);
    // One rank scatters the weight, the other one broadcasts it.
    const ParallelStyle style =
        get_rank() == 0 ? ColwiseParallel() : ReplicateParallel();
    EXPECT_THAT(ThrownMessage([&] {
                  parallelize_module(other, tp, {{"", style}});
                }),
                in_step);
  });
  RunRanks(2, [] {
    StartRankInDouble();
    set_debug_mode(true);
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    torch::nn::Linear model(4, 4);
    parallelize_module(model, tp, {{"", ColwiseParallel()}});
    const torch::Tensor same = torch::ones({3, 4});
    EXPECT_NO_THROW(model(same));
    EXPECT_THAT(ThrownMessage([&] { model(same * get_rank()); }),
                HasSubstr("which must be equal on these ranks"));
  });
}

// A model that fits no rank: parts are made, then filled.
TEST(ParallelizeModule, InitialisesPartsOfAMetaModel) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const auto values_on = [&](const std::optional<DeviceMesh>& tp,
                               const std::optional<DeviceMesh>& dp) {
      std::optional<llama::Llama> model;
      {
        const MetaDeviceGuard meta;
        model.emplace(Options());
      }
      if (tp.has_value()) parallelize_module(*model, *tp, SequencePlan());
      if (dp.has_value()) fully_shard(*model, {.mesh = *dp});
      to_empty(**model, at::kCPU);
      init::default_(**model, 5,
                     [](const std::string& /*name*/, torch::nn::Module& module,
                        uint64_t /*seed*/) {
                       auto* norm = module.as<llama::RmsNormImpl>();
                       if (norm == nullptr) return false;
                       const torch::NoGradGuard no_grad;
                       norm->parameters()[0].fill_(1);
                       return true;
                     });
      std::vector<torch::Tensor> values;
      for (const torch::Tensor& parameter : (*model)->parameters()) {
        const auto tensor = dtensor_of(parameter);
        values.push_back(tensor.has_value() ? tensor->full_tensor()
                                            : parameter.detach());
      }
      return values;
    };
    const auto whole = values_on({}, {});
    const auto both = values_on(mesh["tp"], mesh["dp"]);
    const auto alone = values_on(mesh["tp"], {});
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_TRUE(torch::equal(both[i], whole[i])) << i;
      EXPECT_TRUE(torch::equal(alone[i], whole[i])) << i;
    }
  });
}

TEST(ParallelizeModule, NamesAreMatchedLevelByLevel) {
  llama::Llama model = MakeLlama();
  const auto names = [&](const std::string& pattern) {
    std::vector<std::string> found;
    for (const MatchedModule& match : MatchModules(*model, pattern)) {
      found.push_back(match.name);
    }
    return found;
  };
  EXPECT_THAT(names(""), ElementsAre(""));
  EXPECT_THAT(names("layers.*"), ElementsAre("layers.0", "layers.1"));
  EXPECT_THAT(names("layers.?.mlp.{up,gate}_proj"),
              ElementsAre("layers.0.mlp.gate_proj", "layers.0.mlp.up_proj",
                          "layers.1.mlp.gate_proj", "layers.1.mlp.up_proj"));
  EXPECT_THAT(
      names("layers.[1-9].self_attn.[qk]_proj"),
      ElementsAre("layers.1.self_attn.q_proj", "layers.1.self_attn.k_proj"));
  EXPECT_THAT(names("*.q_proj"), ElementsAre());
  EXPECT_EQ(NearestName(*model, "layer.0.mlp"), "layers.0.mlp");
}

}  // namespace
}  // namespace fsdp::testing
