// SPDX-License-Identifier: Apache-2.0
// The dtype in which gradients are reduced, and in which they accumulate while
// they are not: reduce_dtype, else the parameter's grad_dtype, else its own.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/engine/fsdp_state.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/module_snapshot.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "torch/nn/module.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using torch::kBFloat16;
using torch::kDouble;
using torch::kFloat;
using torch::Tensor;
using OptionalDtype = std::optional<at::ScalarType>;

// Too small to change 1 in bfloat16.
constexpr double kTiny = 1.0 / 512;
constexpr int64_t kNumel = 8;

// The gradient of each weight is the input.
struct ScalesImpl : torch::nn::Module {
  explicit ScalesImpl(at::ScalarType dtype = kFloat)
      : a(register_parameter("a", torch::ones({kNumel}, dtype))),
        b(register_parameter("b", torch::ones({kNumel}, dtype))) {}
  Tensor forward(const Tensor& x) { return a * x + b * x; }
  Tensor a, b;
};

Tensor Filled(double value) { return torch::full({kNumel}, value); }

using Scales = std::shared_ptr<ScalesImpl>;

void Train(const Scales& scales, double value) {
  scales->forward(Filled(value)).sum().backward();
}

// 1 on the first rank and kTiny on the others.
double ValueOfRank() { return get_rank() == 0 ? 1 : kTiny; }

// Adds the dtypes of the reduce-scatters' inputs to `dtypes`.
void WatchReductions(const FSDPModule& module,
                     std::vector<at::ScalarType>* dtypes) {
  Count(module.state()->group()->config().shard_group)
      .set_observer(
          [dtypes](const std::string& op, const at::TensorList inputs) {
            if (op != "reduce_scatter") return;
            for (const Tensor& t : inputs) dtypes->push_back(t.scalar_type());
          });
}

// Expects a gradient that has the dtype, and `value` everywhere.
void ExpectGradient(const Tensor& shard, at::ScalarType dtype, double value) {
  ASSERT_TRUE(shard.grad().defined());
  EXPECT_EQ(shard.grad().scalar_type(), dtype);
  EXPECT_TRUE(shard.grad().to(kDouble).eq(value).all().item<bool>())
      << shard.grad() << " instead of " << value;
}

struct Reduction {
  MixedPrecisionPolicy policy;
  at::ScalarType shards = kFloat;
  // On the parameter `a`; unset: its grad_dtype is left alone.
  std::optional<OptionalDtype> grad_dtype = {};
  at::ScalarType wire = kFloat;
  at::ScalarType of_a = kFloat, of_b = kFloat;  // the gradients'
};

// The average of ValueOfRank over two ranks. In bfloat16 it is 0.5.
constexpr double kExact = (1 + kTiny) / 2;

double Rounded(at::ScalarType wire, at::ScalarType dtype) {
  return torch::full({}, kExact, kDouble).to(wire).to(dtype).item<double>();
}

// Called in one of two ranks.
void ExpectReduction(const Reduction& run) {
  Scales scales = std::make_shared<ScalesImpl>(run.shards);
  if (run.grad_dtype.has_value()) scales->a.set_grad_dtype(*run.grad_dtype);
  FSDPModule module = fully_shard(scales, {.mp_policy = run.policy});
  std::vector<at::ScalarType> dtypes;
  WatchReductions(module, &dtypes);
  Train(scales, ValueOfRank());
  EXPECT_THAT(dtypes, ElementsAre(run.wire));
  ExpectGradient(scales->parameters()[0], run.of_a,
                 Rounded(run.wire, run.of_a));
  ExpectGradient(scales->parameters()[1], run.of_b,
                 Rounded(run.wire, run.of_b));
}

TEST(ReduceDtype, IsTheParametersOwnIfUnset) {
  RunRanks(2, [] {
    StartRank();
    EXPECT_EQ(Rounded(kFloat, kFloat), kExact);
    EXPECT_EQ(Rounded(kBFloat16, kFloat), 0.5);
    ExpectReduction({.policy = {.param_dtype = kBFloat16}});
    ExpectReduction(
        {.policy = {.param_dtype = kBFloat16, .reduce_dtype = kBFloat16},
         .wire = kBFloat16});
    ExpectReduction({.policy = {}});
    ExpectReduction({.policy = {.param_dtype = kBFloat16},
                     .shards = kDouble,
                     .wire = kDouble,
                     .of_a = kDouble,
                     .of_b = kDouble});
    // What is in bfloat16 itself is reduced in it.
    ExpectReduction({.policy = {.param_dtype = kFloat},
                     .shards = kBFloat16,
                     .wire = kBFloat16,
                     .of_a = kBFloat16,
                     .of_b = kBFloat16});
  });
}

TEST(ReduceDtype, FollowsGradDtype) {
  RunRanks(2, [] {
    StartRank();
    // One group's gradients are reduced in the dtype that all promote to.
    ExpectReduction({.policy = {.param_dtype = kBFloat16},
                     .grad_dtype = OptionalDtype(kDouble),
                     .wire = kDouble,
                     .of_a = kDouble});
    ExpectReduction({.policy = {},
                     .shards = kBFloat16,
                     .grad_dtype = OptionalDtype(kFloat),
                     .of_b = kBFloat16});
    // Any dtype: the gradient's, which is the one of the computation.
    ExpectReduction({.policy = {.param_dtype = kDouble},
                     .shards = kFloat,
                     .grad_dtype = OptionalDtype(),
                     .wire = kDouble,
                     .of_a = kDouble});
    // reduce_dtype decides, and shards keep what the program set.
    ExpectReduction(
        {.policy = {.param_dtype = kBFloat16, .reduce_dtype = kFloat},
         .grad_dtype = OptionalDtype(kBFloat16),
         .of_a = kBFloat16});
  });
}

TEST(ReduceDtype, AccumulatesInTheParametersOwn) {
  RunRanks(2, [] {
    StartRank();
    for (const bool low : {false, true}) {
      Scales scales = std::make_shared<ScalesImpl>();
      FSDPModule module = fully_shard(
          scales, {.mp_policy = {.param_dtype = kBFloat16,
                                 .reduce_dtype = low ? OptionalDtype(kBFloat16)
                                                     : OptionalDtype()}});
      std::vector<at::ScalarType> dtypes;
      WatchReductions(module, &dtypes);
      const at::ScalarType dtype = low ? kBFloat16 : kFloat;
      {
        const NoSync scope(module);
        Train(scales, 256);
        EXPECT_EQ(scales->a.grad().scalar_type(), dtype);
        Train(scales, 1);
        // The member has this rank's sum; 257 is no bfloat16.
        EXPECT_EQ(scales->a.grad()[0].item<double>(), low ? 256 : 257);
      }
      Train(scales, -256);
      EXPECT_THAT(dtypes, ElementsAre(dtype));
      ExpectGradient(scales->parameters()[0], kFloat, low ? 0 : 1);
    }
  });
}

TEST(ReduceDtype, AccumulatesOnOneRank) {
  RunRanks(1, [] {
    StartRank();
    Scales scales = std::make_shared<ScalesImpl>();
    FSDPModule module =
        fully_shard(scales, {.mp_policy = {.param_dtype = kBFloat16}});
    {
      const NoSync scope(module);
      Train(scales, 256);
      Train(scales, 1);
    }
    Train(scales, -256);
    ExpectGradient(scales->parameters()[0], kFloat, 1);
    // Without accumulation, too, the shard's gradient has its dtype.
    scales->zero_grad();
    Train(scales, 1);
    ExpectGradient(scales->parameters()[0], kFloat, 1);
  });
}

// A microbatch that uses one parameter, after one that used another.
TEST(ReduceDtype, CoversWhatTheLastMicrobatchDidNotUse) {
  RunRanks(3, [] {
    StartRank();
    Scales scales = std::make_shared<ScalesImpl>();
    FSDPModule module =
        fully_shard(scales, {.mp_policy = {.param_dtype = kBFloat16}});
    std::vector<at::ScalarType> dtypes;
    WatchReductions(module, &dtypes);
    {
      const NoSync scope(module);
      (scales->a * Filled(256)).sum().backward();
      (scales->a * Filled(1)).sum().backward();
    }
    (scales->b * Filled(3)).sum().backward();
    EXPECT_THAT(dtypes, ElementsAre(kFloat));
    ExpectGradient(scales->parameters()[0], kFloat, 257);
    ExpectGradient(scales->parameters()[1], kFloat, 3);
  });
}

TEST(ReduceDtype, KeepsPartialSumsOfReplicas) {
  RunRanks(4, [] {
    StartRank();
    Scales scales = std::make_shared<ScalesImpl>();
    FSDPModule module = fully_shard(
        scales, {.mesh = init_device_mesh("cpu", {2, 2}, {"copies", "shard"}),
                 .mp_policy = {.param_dtype = kBFloat16}});
    module.set_requires_all_reduce(false);
    Train(scales, 256);
    Train(scales, 1);
    module.set_requires_all_reduce(true);
    Train(scales, -256);
    ExpectGradient(scales->parameters()[0], kFloat, 1);
  });
}

// A later microbatch computes in a narrower dtype, and any dtype is allowed.
TEST(ReduceDtype, PartialSumsAreNotNarrowed) {
  RunRanks(4, [] {
    StartRank();
    auto scales = std::make_shared<ScalesImpl>(kBFloat16);
    scales->a.set_grad_dtype(std::nullopt);
    scales->b.set_requires_grad(false);
    FSDPModule module = fully_shard(
        scales, {.mesh = init_device_mesh("cpu", {2, 2}, {"copies", "shard"}),
                 .mp_policy = {}});
    module.set_requires_all_reduce(false);
    (scales->a * Filled(1)).sum().backward();
    module.set_requires_all_reduce(true);
    (scales->a * Filled(kTiny).to(kBFloat16)).sum().backward();
    ExpectGradient(scales->parameters()[0], kFloat, 1 + kTiny);
  });
}

TEST(ReduceDtype, IsTheSameAfterAFrozenFirstForward) {
  RunRanks(2, [] {
    StartRank();
    Scales scales = std::make_shared<ScalesImpl>();
    FSDPModule module =
        fully_shard(scales, {.mp_policy = {.param_dtype = kBFloat16}});
    std::vector<at::ScalarType> dtypes;
    WatchReductions(module, &dtypes);
    for (Tensor& p : scales->parameters()) p.set_requires_grad(false);
    scales->forward(Filled(1));
    scales->parameters()[0].set_requires_grad(true);
    Train(scales, ValueOfRank());
    EXPECT_THAT(dtypes, ElementsAre(kFloat));
    ExpectGradient(scales->parameters()[0], kFloat, kExact);
  });
}

TEST(ReduceDtype, ChangesWithTheShards) {
  RunRanks(2, [] {
    StartRank();
    Scales scales = std::make_shared<ScalesImpl>();
    FSDPModule module =
        fully_shard(scales, {.mp_policy = {.param_dtype = kBFloat16}});
    scales->to(kDouble);
    std::vector<at::ScalarType> dtypes;
    WatchReductions(module, &dtypes);
    Train(scales, ValueOfRank());
    EXPECT_THAT(dtypes, Each(kDouble));
    ExpectGradient(scales->parameters()[0], kDouble, kExact);
  });
}

TEST(ReduceDtype, ZerosForMissingGradientsHaveIt) {
  RunRanks(2, [] {
    StartRank();
    Scales scales = std::make_shared<ScalesImpl>();
    FSDPModule module =
        fully_shard(scales, {.mp_policy = {.param_dtype = kBFloat16}});
    module.set_reduce_scatter_unused_params(true);
    std::vector<at::ScalarType> dtypes;
    WatchReductions(module, &dtypes);
    const Tensor& used = get_rank() == 0 ? scales->a : scales->b;
    (used * Filled(1)).sum().backward();
    EXPECT_THAT(dtypes, ElementsAre(kFloat));
    ExpectGradient(scales->parameters()[0], kFloat, 0.5);
    ExpectGradient(scales->parameters()[1], kFloat, 0.5);
  });
}

TEST(ReduceDtype, ZerosOfAnyDtypeAreRefused) {
  RunRanks(2, [] {
    StartRank();
    for (const bool decided : {false, true}) {
      Scales scales = std::make_shared<ScalesImpl>();
      scales->a.set_grad_dtype(std::nullopt);
      FSDPModule module = fully_shard(
          scales, {.mp_policy = {.reduce_dtype = decided ? OptionalDtype(kFloat)
                                                         : OptionalDtype()}});
      module.set_reduce_scatter_unused_params(true);
      CountingBackend& counts =
          Count(module.state()->group()->config().shard_group);
      if (decided) {
        Train(scales, 1);
        ExpectGradient(scales->parameters()[0], kFloat, 1);
        continue;
      }
      ExpectError<c10::ValueError>([&] { Train(scales, 1); },
                                   {"'a'", "any dtype", "reduce_dtype"});
      EXPECT_EQ(counts.calls("reduce_scatter"), 0);
    }
  });
}

}  // namespace
}  // namespace fsdp::testing
