// SPDX-License-Identifier: Apache-2.0
// parallelize_module beneath fully_shard: the expectations in PyTorch's tests
// for two parallelisms (test/distributed/_composable/test_composability/
// test_2d_composability.py and the 2-D cases in
// test/distributed/_composable/fsdp/test_fully_shard_*.py), for the modules
// that they use.

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/checkpoint/state/torch_status.h"
#include "fsdp/checkpoint/state_dict.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/examples/train_llama/model.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/module/init_defaults.h"
#include "fsdp/module/materialize.h"
#include "fsdp/optim/clip_grad_norm.h"
#include "fsdp/parallel/tensor/parallelize_module.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/parallel/tensor/mlp_stack.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/optim/adam.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::HasSubstr;

// Parallelizes, then shards each part and the whole.
void Shard2D(Stack& model, const DeviceMesh& mesh,
             FullyShardOptions options = {}) {
  parallelize_module(model, mesh["tp"], StackPlan());
  options.mesh = mesh["dp"];
  for (Mlp& mlp : model->mlps) fully_shard(mlp.ptr(), options);
  fully_shard(model, options);
}

void ExpectNear(const torch::nn::Module& module,
                const torch::nn::Module& reference, const std::string& where) {
  const auto expected = reference.named_parameters();
  const auto parameters = named_parameters(module);
  EXPECT_EQ(parameters.size(), expected.size());
  for (const auto& [name, parameter] : parameters) {
    EXPECT_TRUE(
        torch::allclose(parameter.full_tensor(), expected[name], 1e-9, 1e-11))
        << name << " " << where;
  }
}

// Makes Adam steps on `model` and on the same module in one process.
void ExpectTrainsAsOne(Stack model, Stack reference, const DeviceMesh& mesh,
                       int64_t dim, const std::string& where) {
  torch::optim::Adam step(model->parameters(), 1e-2);
  torch::optim::Adam reference_step(reference->parameters(), 1e-2);
  for (int64_t i = 0; i < 4; ++i) {
    const Batch batch = MakeBatch(i, dim, mesh["dp"]);
    step.zero_grad(/*set_to_none=*/i % 2 == 0);
    reference_step.zero_grad();
    model->forward(batch.mine).square().mean().backward();
    reference->forward(batch.whole).square().mean().backward();
    // Otherwise the comparison below would prove nothing.
    ASSERT_NE(reference->mlps[0]->in_proj->weight.grad().sum().item<double>(),
              0);
    step.step();
    reference_step.step();
  }
  ExpectNear(*model, *reference, where);
}

TEST(TwoDimensional, StacksTrainAsOneProcess) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    for (const int64_t dim : {3, 16, 17}) {
      for (const bool reshard : {false, true}) {
        for (const bool recompute : {false, true}) {
          Stack model = MakeStack(dim);
          model->Recompute(recompute);
          Shard2D(model, mesh, {.reshard_after_forward = reshard});
          ExpectTrainsAsOne(model, MakeStack(dim), mesh, dim,
                            "of " + std::to_string(dim));
        }
      }
    }
  });
}

TEST(TwoDimensional, MeshesMayHaveFurtherAxes) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh mesh =
        init_device_mesh("cpu", {1, 2, 2}, {"pp", "dp", "tp"});
    Stack model = MakeStack(16);
    Shard2D(model, mesh);
    const at::Tensor& weight = model->mlps[0]->in_proj->weight;
    EXPECT_EQ(dtensor_of(weight)->device_mesh(),
              (mesh[std::vector<std::string>{"dp", "tp"}]));
    ExpectTrainsAsOne(model, MakeStack(16), mesh, 16, "beside a stage");
  });
}

TEST(TwoDimensional, ReplicasAreAThirdAxis) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh mesh =
        init_device_mesh("cpu", {2, 1, 2}, {"replicate", "shard", "tp"});
    Stack model = MakeStack(16);
    parallelize_module(model, mesh["tp"], StackPlan());
    const DeviceMesh data =
        mesh[std::vector<std::string>{"replicate", "shard"}];
    fully_shard(model, {.mesh = data});
    const auto placements_of = [](const at::Tensor& parameter) {
      return to_string(dtensor_of(parameter)->placements());
    };
    EXPECT_EQ(placements_of(model->mlps[0]->in_proj->weight),
              "(Replicate(), _StridedShard(dim=0, sf=2), Shard(dim=0))");
    EXPECT_EQ(placements_of(model->mlps[0]->out_proj->weight),
              "(Replicate(), Shard(dim=0), Shard(dim=1))");
    EXPECT_EQ(placements_of(model->mlps[0]->out_proj->bias),
              "(Replicate(), Shard(dim=0), Replicate())");
    Stack reference = MakeStack(16);
    const Batch batch = MakeBatch(0, 16, mesh["replicate"]);
    model->forward(batch.mine).square().mean().backward();
    reference->forward(batch.whole).square().mean().backward();
    const auto expected = reference->named_parameters();
    for (const auto& [name, parameter] : named_parameters(*model)) {
      EXPECT_TRUE(torch::allclose(parameter.grad()->full_tensor(),
                                  expected[name].grad(), 1e-10, 1e-13))
          << name;
    }
  });
}

llama::ModelOptions LlamaOptions() {
  return {.vocab_size = 24,
          .dim = 16,
          .num_layers = 2,
          .num_heads = 4,
          .num_kv_heads = 2,
          .ffn_dim = 20};
}

llama::Llama MakeLlama() {
  torch::manual_seed(3);
  llama::Llama model(LlamaOptions());
  llama::InitWeights(model, LlamaOptions());
  return model;
}

const ParallelizePlan& LlamaPlan() {
  static const auto* plan = [] {
    const ParallelStyleOptions scatter{.output_layouts = Shard(1)};
    return new ParallelizePlan{
        {"embed_tokens", RowwiseParallel(scatter)},
        {"layers.*.self_attn.[qkv]_proj", ColwiseParallel()},
        {"layers.*.self_attn.o_proj", RowwiseParallel(scatter)},
        {"layers.*.mlp.{gate,up}_proj", ColwiseParallel()},
        {"layers.*.mlp.down_proj", RowwiseParallel(scatter)},
        {"layers.*.*_layernorm", SequenceParallel()},
        {"norm", SequenceParallel()},
        {"lm_head", ColwiseParallel()}};
  }();
  return *plan;
}

torch::Tensor ComputeLoss(llama::Llama& model, const torch::Tensor& tokens) {
  const int64_t last = tokens.size(1) - 1;
  const torch::Tensor logits = model->forward(tokens.narrow(1, 0, last));
  return torch::nn::functional::cross_entropy(
      logits.flatten(0, 1), tokens.narrow(1, 1, last).flatten());
}

TEST(TwoDimensional, TransformersMayBeCutAlongAnyDimension) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    llama::Llama model = MakeLlama();
    parallelize_module(model, mesh["tp"], LlamaPlan());
    const FullyShardOptions options{
        .mesh = mesh["dp"],
        .shard_placement_fn =
            [](const at::Tensor& parameter) -> std::optional<fsdp::Shard> {
          if (parameter.dim() < 2) return std::nullopt;
          return fsdp::Shard(1);
        }};
    for (const auto& block : *model->layers) fully_shard(block, options);
    fully_shard(model, options);
    const std::map<std::string, std::string> expected = {
        {"layers.0.mlp.up_proj.weight", "(Shard(dim=1), Shard(dim=0))"},
        {"layers.0.mlp.down_proj.weight",
         "(_StridedShard(dim=1, sf=2), Shard(dim=1))"},
        {"layers.0.input_layernorm.weight", "(Shard(dim=0), Replicate())"},
        {"embed_tokens.weight", "(Shard(dim=1), Shard(dim=0))"}};
    size_t num_seen = 0;
    for (const auto& [name, parameter] : named_parameters(*model)) {
      const auto found = expected.find(name);
      if (found == expected.end()) continue;
      ++num_seen;
      EXPECT_EQ(to_string(parameter.placements()), found->second) << name;
    }
    EXPECT_EQ(num_seen, expected.size());

    llama::Llama reference = MakeLlama();
    torch::optim::Adam step(model->parameters(), 1e-2);
    torch::optim::Adam reference_step(reference->parameters(), 1e-2);
    const int64_t first = 2 * mesh.get_local_rank("dp");
    for (int64_t i = 0; i < 3; ++i) {
      const torch::Tensor place = torch::arange(36);
      const torch::Tensor tokens =
          (place * place + 5 * i).remainder(24).view({4, 9});
      step.zero_grad();
      reference_step.zero_grad();
      ComputeLoss(model, tokens.narrow(0, first, 2)).backward();
      ComputeLoss(reference, tokens).backward();
      step.step();
      reference_step.step();
    }
    ExpectNear(*model, *reference, "after all steps");
  });
}

TEST(TwoDimensional, OffloadedShardsCommunicateOnTheTensorAxisAlone) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh mesh = init_device_mesh("cpu", {1, 2}, {"dp", "tp"});
    Stack model = MakeStack(16);
    Shard2D(model, mesh,
            {.offload_policy = CPUOffloadPolicy{.pin_memory = false}});
    CountingBackend& counts = Count(mesh.get_group("tp"));
    CountingBackend& data_counts = Count(mesh.get_group("dp"));
    torch::optim::Adam step(model->parameters(), 1e-2);
    for (int64_t i = 0; i < 3; ++i) {
      counts.Reset();
      const torch::Tensor loss =
          model->forward(MakeBatch(i, 16, mesh["dp"]).mine).square().mean();
      EXPECT_EQ(counts.ToString(), "all_reduce 3");
      counts.Reset();
      loss.backward();
      // The first part's input has no gradient.
      EXPECT_EQ(counts.ToString(), "all_reduce 2");
      for (const auto& [name, parameter] : named_parameters(*model)) {
        EXPECT_TRUE(parameter.to_local().is_cpu()) << name;
        ASSERT_TRUE(parameter.grad().has_value()) << name;
        EXPECT_TRUE(parameter.grad()->to_local().is_cpu()) << name;
      }
      step.step();
      step.zero_grad();
    }
    EXPECT_EQ(data_counts.calls("all_gather"), 0);
  });
}

TEST(TwoDimensional, GradientNormsMatchOneProcess) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    for (const double p : {2.0, 1.0, double{INFINITY}}) {
      Stack model = MakeStack(16);
      Stack reference = MakeStack(16);
      Shard2D(model, mesh);
      const Batch batch = MakeBatch(0, 16, mesh["dp"]);
      model->forward(batch.mine).square().mean().backward();
      reference->forward(batch.whole).square().mean().backward();
      std::vector<CountingBackend*> counts;
      for (const ProcessGroup& group : mesh.get_all_groups()) {
        counts.push_back(&Count(group));
        counts.back()->Reset();
      }
      // Small enough that it takes effect.
      constexpr double kMaxNorm = 1e-4;
      const double norm =
          clip_grad_norm_(model->parameters(), kMaxNorm, p).item<double>();
      for (const CountingBackend* axis : counts) {
        EXPECT_EQ(axis->ToString(), "all_reduce 1");
      }
      EXPECT_NEAR(norm,
                  torch::nn::utils::clip_grad_norm_(reference->parameters(),
                                                    kMaxNorm, p),
                  1e-12);
      EXPECT_GT(norm, kMaxNorm);
      const auto expected = reference->named_parameters();
      for (const auto& [name, parameter] : named_parameters(*model)) {
        EXPECT_TRUE(torch::allclose(parameter.grad()->full_tensor(),
                                    expected[name].grad(), 1e-9, 1e-14))
            << name;
      }
    }
  });
}

TEST(TwoDimensional, ModelsMayBeginOnTheMetaDevice) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    std::optional<Stack> model;
    {
      const MetaDeviceGuard meta;
      model.emplace(17);
    }
    Shard2D(*model, mesh);
    for (const auto& [name, parameter] : named_parameters(**model)) {
      EXPECT_TRUE(parameter.to_local().is_meta()) << name;
    }
    to_empty(*model, at::kCPU);
    init::default_(**model, /*seed=*/7);
    Stack whole(17);
    init::default_(*whole, /*seed=*/7);
    ExpectNear(**model, *whole, "after init");
    ExpectTrainsAsOne(*model, whole, mesh, 17, "from the meta device");
  });
}

TEST(TwoDimensional, WholeStateDictsAreSet) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    Stack trained = MakeStack(17);
    Shard2D(trained, mesh);
    torch::optim::Adam step(trained->parameters(), 1e-2);
    trained->forward(MakeBatch(0, 17, mesh["dp"]).mine).sum().backward();
    step.step();
    const StateDictOptions full{.full_state_dict = true};
    auto states = get_state_dict(*trained, step, full);
    ThrowIfError(states.status());

    torch::manual_seed(6);  // other values
    Stack model(17);
    Shard2D(model, mesh);
    torch::optim::Adam other_step(model->parameters(), 1e-2);
    ThrowIfError(
        set_state_dict(*model, other_step, states->first, states->second, full)
            .status());
    // The next step is equal as well: the optimizer's state has arrived.
    for (int64_t i = 0; i < 2; ++i) {
      const auto expected = named_parameters(*trained);
      const auto found = named_parameters(*model);
      for (size_t k = 0; k < expected.size(); ++k) {
        EXPECT_TRUE(torch::equal(found[k].second.to_local(),
                                 expected[k].second.to_local()))
            << expected[k].first << " in step " << i;
      }
      for (auto [stack, optimizer] :
           {std::pair(&trained, &step), std::pair(&model, &other_step)}) {
        optimizer->zero_grad();
        (*stack)->forward(MakeBatch(1, 17, mesh["dp"]).mine).sum().backward();
        optimizer->step();
      }
    }
  });
}

TEST(TwoDimensional, TheOtherOrderIsRefused) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh mesh = init_device_mesh("cpu", {1, 2}, {"dp", "tp"});
    Stack model = MakeStack(16);
    fully_shard(model, {.mesh = mesh["dp"]});
    EXPECT_THAT(ThrownMessage([&] {
                  parallelize_module(model, mesh["tp"], StackPlan());
                }),
                HasSubstr("Parallelize first"));
    Stack other = MakeStack(16);
    parallelize_module(other, mesh["tp"], StackPlan());
    EXPECT_THAT(
        ThrownMessage([&] { fully_shard(other, {.mesh = mesh["tp"]}); }),
        HasSubstr("overlap"));
  });
}

}  // namespace
}  // namespace fsdp::testing
