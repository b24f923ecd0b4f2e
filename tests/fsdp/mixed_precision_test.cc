// SPDX-License-Identifier: Apache-2.0
// Mixed precision by parameter group: the dtypes for computation and reduction,
// compared with the same steps written out explicitly. Also CPU offload, and
// the memory that a step gathers.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/fully_shard.h"
#include "fsdp/optim/sharded_grad_scaler.h"
#include "fsdp/report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/start_rank.h"
#include "tests/fsdp/tiny_model.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "torch/optim/adam.h"
#include "torch/optim/sgd.h"

namespace fsdp::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using torch::kBFloat16;
using torch::kFloat;
using torch::kHalf;
using torch::Tensor;
using Dtypes = std::vector<at::ScalarType>;

constexpr TinyModelOptions kSmall = {.vocabulary = 11, .dim = 6, .length = 4};

TinyModel MakeModel() {
  torch::manual_seed(42);
  return TinyModel(kSmall);
}

void ShardBlocks(TinyModel& model, const FullyShardOptions& options) {
  for (const auto& block : *model->blocks) fully_shard(block, options);
  fully_shard(model, options);
}

Tensor Mine(int step) {
  return TinyBatch(step, 8, kSmall).chunk(get_world_size())[get_rank()];
}

// ---- Parity with steps written out -----------------------------------------

// Averages `gradient` over the ranks in the gradient's dtype and in rank order.
// With two ranks, float16 is divided before it is summed.
Tensor Reduced(const Tensor& gradient) {
  const int64_t world = get_world_size();
  const double before = gradient.scalar_type() == kHalf ? 2 : 1;
  std::vector<std::vector<Tensor>> all(1);
  for (int64_t r = 0; r < world; ++r) {
    all[0].push_back(torch::empty_like(gradient));
  }
  std::vector<Tensor> own{(gradient / before).contiguous()};
  world_group()->allgather(all, own)->wait();
  Tensor sum = all[0][0];
  for (int64_t r = 1; r < world; ++r) sum = sum + all[0][r];
  return sum / (static_cast<double>(world) / before);
}

// One mixed precision step, written out: a copy of the float32 model in
// `compute`, with gradients reduced in `reduce`.
double EmulatedBackward(TinyModel& master, int step, at::ScalarType compute,
                        at::ScalarType reduce) {
  TinyModel copy = MakeModel();
  copy->to(compute);
  {
    const torch::NoGradGuard no_grad;
    const auto from = master->named_parameters();
    for (const auto& item : copy->named_parameters()) {
      item.value().copy_(from[item.key()]);
      item.value().set_requires_grad(from[item.key()].requires_grad());
    }
  }
  const Tensor loss = TinyLoss(copy, Mine(step));
  loss.backward();
  const auto to = master->named_parameters();
  for (const auto& item : copy->named_parameters()) {
    const Tensor gradient = item.value().grad();
    Tensor& held = to[item.key()].mutable_grad();
    held =
        gradient.defined() ? Reduced(gradient.to(reduce)).to(kFloat) : Tensor();
  }
  return loss.item<double>();
}

struct Precision {
  MixedPrecisionPolicy policy;
  at::ScalarType compute = kFloat;
  at::ScalarType reduce = kFloat;  // on the wire
  ReshardAfterForward reshard = {};
  std::optional<CPUOffloadPolicy> offload = {};
  bool frozen = false;  // the second block
};

// Called in a rank.
void ExpectAsEmulated(const Precision& run) {
  SCOPED_TRACE(std::string(c10::toString(run.compute)) + "/" +
               c10::toString(run.reduce));
  TinyModel master = MakeModel();
  TinyModel model = MakeModel();
  for (TinyModel* each : {&master, &model}) {
    for (auto& p : (*each)->blocks[1]->parameters()) {
      p.set_requires_grad(!run.frozen);
    }
  }
  FullyShardOptions options;
  options.reshard_after_forward = run.reshard;
  options.mp_policy = run.policy;
  options.offload_policy = run.offload;
  options.mesh = init_device_mesh("cpu", {get_world_size()}, {"shard"});
  Dtypes reduced;
  Count(options.mesh->get_group())
      .set_observer([&](const std::string& op, const at::TensorList inputs) {
        if (op != "reduce_scatter") return;
        for (const Tensor& t : inputs) reduced.push_back(t.scalar_type());
      });
  ShardBlocks(model, options);
  const auto adam = torch::optim::AdamOptions(1e-2).eps(1e-5);
  torch::optim::Adam master_optimizer(master->parameters(), adam);
  torch::optim::Adam optimizer(model->parameters(), adam);
  for (int step = 0; step < 4; ++step) {
    const double want = EmulatedBackward(master, step, run.compute, run.reduce);
    optimizer.zero_grad(/*set_to_none=*/step % 2 == 0);
    const Tensor loss = TinyLoss(model, Mine(step));
    EXPECT_EQ(loss.scalar_type(), run.compute);
    loss.backward();
    EXPECT_NEAR(loss.item<double>(), want, 1e-6) << "step " << step;
    const auto expected = master->named_parameters();
    for (const auto& [name, parameter] : named_parameters(*model)) {
      EXPECT_EQ(parameter.scalar_type(), kFloat) << name;
      const std::optional<DTensor> grad = parameter.grad();
      ASSERT_EQ(grad.has_value(), expected[name].grad().defined()) << name;
      if (!grad.has_value()) continue;
      EXPECT_EQ(grad->scalar_type(), kFloat) << name;
      EXPECT_TRUE(torch::allclose(grad->full_tensor(), expected[name].grad(),
                                  /*rtol=*/1e-5, /*atol=*/1e-7))
          << "step " << step << " " << name;
    }
    optimizer.step();
    master_optimizer.step();
  }
  EXPECT_THAT(reduced, AllOf(Not(SizeIs(0)), Each(run.reduce)));
  Count(options.mesh->get_group()).set_observer(nullptr);
}

TEST(MixedPrecision, ComputesInTheDtypeOfTheParameters) {
  RunRanks(2, [] {
    StartRank();
    for (const at::ScalarType dtype : {kBFloat16, kHalf}) {
      for (const bool reshard : {true, false}) {
        ExpectAsEmulated({.policy = {.param_dtype = dtype},
                          .compute = dtype,
                          .reshard = reshard});
        ExpectAsEmulated(
            {.policy = {.param_dtype = dtype, .reduce_dtype = dtype},
             .compute = dtype,
             .reduce = dtype,
             .reshard = reshard});
      }
    }
  });
}

TEST(MixedPrecision, ReducesInItsOwnDtype) {
  RunRanks(2, [] {
    StartRank();
    ExpectAsEmulated(
        {.policy = {.param_dtype = kBFloat16, .reduce_dtype = kFloat},
         .compute = kBFloat16});
    ExpectAsEmulated({.policy = {.reduce_dtype = kBFloat16},
                      .reduce = kBFloat16,
                      .reshard = true});
    ExpectAsEmulated(
        {.policy = {.param_dtype = kFloat, .reduce_dtype = kFloat}});
  });
}

TEST(MixedPrecision, FrozenGroupsAndUnevenShards) {
  RunRanks(3, [] {
    StartRank();
    ExpectAsEmulated(
        {.policy = {.param_dtype = kBFloat16, .reduce_dtype = kFloat},
         .compute = kBFloat16,
         .frozen = true});
  });
}

TEST(MixedPrecision, AccumulatesInTheDtypeOfReduction) {
  RunRanks(2, [] {
    StartRank();
    TinyModel model = MakeModel();
    ShardBlocks(model, {.mp_policy = {.param_dtype = kBFloat16,
                                      .reduce_dtype = kFloat}});
    FSDPModule root = get_fsdp_module(*model);
    TinyModel master = MakeModel();
    TinyModel sum = MakeModel();
    constexpr int kMicrobatches = 5;
    for (int i = 0; i < kMicrobatches; ++i) {
      root.set_requires_gradient_sync(i == kMicrobatches - 1);
      TinyLoss(model, Mine(i)).backward();
      EmulatedBackward(master, i, kBFloat16, kFloat);
      const auto to = sum->named_parameters();
      for (const auto& item : master->named_parameters()) {
        Tensor& held = to[item.key()].mutable_grad();
        const Tensor& gradient = item.value().grad();
        held = held.defined() ? held + gradient : gradient.clone();
      }
    }
    const auto want = sum->named_parameters();
    for (const auto& [name, parameter] : named_parameters(*model)) {
      // Sums in bfloat16 would be off by some 1e-3.
      EXPECT_TRUE(torch::allclose(parameter.grad()->full_tensor(),
                                  want[name].grad(), /*rtol=*/1e-5,
                                  /*atol=*/1e-7))
          << name;
    }
  });
}

// Two matrices; a step may leave one out.
struct TwoImpl : torch::nn::Module {
  TwoImpl()
      : a(register_module("a", torch::nn::Linear(4, 4))),
        b(register_module("b", torch::nn::Linear(4, 4))) {}
  torch::nn::Linear a, b;
};

TEST(MixedPrecision, AccumulatesThoughOnlyTheLastMicrobatchUsesAll) {
  RunRanks(2, [] {
    StartRank();
    auto model = std::make_shared<TwoImpl>();
    FSDPModule root = fully_shard(
        model,
        {.mp_policy = {.param_dtype = kBFloat16, .reduce_dtype = kFloat}});
    const Tensor x = torch::ones({2, 4}, kBFloat16);
    root.set_requires_gradient_sync(false);
    model->a(x).sum().backward();
    root.set_requires_gradient_sync(true);
    (model->a(x).sum() + model->b(x).sum()).backward();
    const auto grads = named_parameters(*model);
    EXPECT_TRUE(
        grads[0].second.grad()->full_tensor().equal(torch::full({4, 4}, 4.0F)));
    EXPECT_TRUE(
        grads[2].second.grad()->full_tensor().equal(torch::full({4, 4}, 2.0F)));
  });
}

TEST(MixedPrecision, HalfWithAGradientScaler) {
  RunRanks(2, [] {
    StartRank();
    TinyModel model = MakeModel();
    ShardBlocks(model, {.mp_policy = {.param_dtype = kHalf}});
    TinyModel before = MakeModel();
    torch::optim::SGD optimizer(model->parameters(), 1.0);
    ShardedGradScaler scaler({.init_scale = 64});
    scaler.scale(TinyLoss(model, Mine(0))).backward();
    EXPECT_TRUE(scaler.step(optimizer));
    scaler.update();
    EXPECT_EQ(scaler.get_scale(), 64);
    EmulatedBackward(before, 0, kFloat, kFloat);
    const auto want = before->named_parameters();
    const auto weights = named_parameters(*model);
    for (const auto& [name, parameter] : weights) {
      EXPECT_TRUE(torch::allclose(parameter.full_tensor(),
                                  want[name] - want[name].grad(), 1e-2, 2e-3))
          << name;
    }
    // Beyond float16's range: no step, half the scale.
    optimizer.zero_grad();
    scaler.update(1e7);
    const Tensor weight = weights[0].second.to_local().clone();
    scaler.scale(TinyLoss(model, Mine(1)).to(kFloat)).backward();
    EXPECT_FALSE(scaler.step(optimizer));
    scaler.update();
    EXPECT_EQ(scaler.get_scale(), 5e6);
    EXPECT_TRUE(weight.equal(weights[0].second.to_local()));
  });
}

// ---- CPU offload -----------------------------------------------------------

TEST(CpuOffload, TrainsAsWithout) {
  RunRanks(2, [] {
    StartRank();
    constexpr CPUOffloadPolicy kPageable = {.pin_memory = false};
    ExpectAsEmulated({.policy = {}, .reshard = true, .offload = kPageable});
    ExpectAsEmulated(
        {.policy = {.param_dtype = kBFloat16, .reduce_dtype = kFloat},
         .compute = kBFloat16,
         .offload = kPageable});
  });
}

TEST(CpuOffload, OneRank) {
  RunRanks(1, [] {
    StartRank();
    TinyModel reference = MakeModel();
    TinyModel model = MakeModel();
    ShardBlocks(model,
                {.offload_policy = CPUOffloadPolicy{.pin_memory = false}});
    TinyLoss(reference, Mine(0)).backward();
    TinyLoss(model, Mine(0)).backward();
    const auto want = reference->named_parameters();
    for (const auto& item : model->named_parameters()) {
      EXPECT_TRUE(item.value().grad().equal(want[item.key()].grad()));
    }
  });
}

TEST(CpuOffload, PinnedMemoryNeedsAnAccelerator) {
  RunRanks(1, [] {
    StartRank();
    TinyModel model = MakeModel();
    EXPECT_THAT(ThrownMessage([&] {
                  fully_shard(model, {.offload_policy = CPUOffloadPolicy{}});
                }),
                AllOf(HasSubstr("pinned memory needs an accelerator"),
                      HasSubstr("pin_memory = false")));
    EXPECT_FALSE(find_fsdp_module(*model).has_value());
  });
}

// ---- Memory ----------------------------------------------------------------

uint64_t GatheredBytes(const torch::nn::Module& module) {
  uint64_t num_bytes = 0;
  for (const auto& parameter : named_parameters(module)) {
    num_bytes += parameter.second.numel() * sizeof(float);
  }
  return num_bytes;
}

// The most bytes gathered at once: in forward, and in the whole step.
struct Peaks {
  uint64_t forward, step;
};

Peaks PeaksOfAStep(TinyModel& model) {
  TinyLoss(model, Mine(0)).backward();
  reset_step_report(*model);
  const Tensor loss = TinyLoss(model, Mine(1));
  const uint64_t in_forward = step_report(*model).unsharded_bytes_peak;
  loss.backward();
  const StepReport report = step_report(*model);
  EXPECT_EQ(report.unsharded_bytes, 0u);
  return {in_forward, report.unsharded_bytes_peak};
}

TEST(Memory, FewGroupsAreGatheredAtOnce) {
  RunRanks(2, [] {
    StartRank();
    for (const bool freeze : {false, true}) {
      // Even shards: gathered bytes equal the parameters' bytes.
      const TinyModelOptions options = {
          .vocabulary = 12, .dim = 8, .num_blocks = 5, .length = 4};
      const auto make = [&](const FullyShardOptions& sharding) {
        TinyModel model(options);
        for (const auto& block : *model->blocks) {
          block->as<Block>()->scale = ParameterRegistry(*block)["scale"] =
              torch::ones({2, 8});
          for (auto& p : block->parameters()) p.set_requires_grad(!freeze);
        }
        ShardBlocks(model, sharding);
        return model;
      };
      TinyModel model = make({.reshard_after_forward = true});
      const uint64_t all = GatheredBytes(*model);
      const uint64_t block = GatheredBytes(*model->blocks[0]);
      const uint64_t root = all - 5 * block;
      const Peaks peaks = PeaksOfAStep(model);
      EXPECT_EQ(peaks.forward, root + block);
      EXPECT_LE(peaks.step, root + 2 * block);

      TinyModel ahead = make({.reshard_after_forward = true});
      for (size_t i = 0; i + 1 < 5; ++i) {
        get_fsdp_module(*ahead->blocks[i])
            .set_modules_to_forward_prefetch(
                {get_fsdp_module(*ahead->blocks[i + 1])});
      }
      EXPECT_LE(PeaksOfAStep(ahead).step, root + 2 * block);

      TinyModel kept = make({.reshard_after_forward = false});
      const Peaks all_kept = PeaksOfAStep(kept);
      EXPECT_EQ(all_kept.forward, all);
      EXPECT_EQ(all_kept.step, all);
    }
  });
}

}  // namespace
}  // namespace fsdp::testing
