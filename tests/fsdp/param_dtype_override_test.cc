// SPDX-License-Identifier: Apache-2.0
// MixedPrecisionPolicy::param_dtype_override_fn: single parameters that keep
// their dtype in a group that computes in another.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/engine/fsdp_state.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/forward.h"
#include "fsdp/fully_shard.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/module_snapshot.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/optim/sgd.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using torch::kBFloat16;
using torch::kDouble;
using torch::kFloat;
using torch::kHalf;
using torch::Tensor;

// A norm, experts of one matrix each, and a router that computes in its
// weight's dtype.
struct RoutedImpl : torch::nn::Module {
  RoutedImpl()
      : norm(register_module(
            "norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})))),
        router(register_module("router", torch::nn::Linear(6, 2))),
        up(register_module("up", torch::nn::Linear(6, 6))) {}
  Tensor forward(const Tensor& x) {
    const Tensor h = norm(x);
    inputs["norm"] = x.scalar_type();
    const Tensor routed = h.to(router->weight.scalar_type());
    const Tensor chances = torch::softmax(router(routed), -1);
    outputs["router"] = chances.scalar_type();
    const Tensor y = up(h);
    outputs["up"] = y.scalar_type();
    return y * chances.narrow(-1, 0, 1).to(y.scalar_type());
  }
  std::map<std::string, at::ScalarType> inputs, outputs;
  torch::nn::LayerNorm norm;
  torch::nn::Linear router, up;
};
TORCH_MODULE(Routed);

Routed MakeRouted() {
  torch::manual_seed(5);
  return Routed();
}

Tensor RoutedInput() {
  torch::manual_seed(get_rank());
  return torch::randn({4, 6});
}

bool KeepsDtype(const std::string& name) {
  return name.find("up") == std::string::npos;
}

MixedPrecisionPolicy KeepNormAndRouter() {
  return {.param_dtype = kBFloat16,
          .param_dtype_override_fn =
              [](const std::string& name,
                 const Tensor& p) -> std::optional<at::ScalarType> {
            if (!KeepsDtype(name)) return std::nullopt;
            return p.scalar_type();
          }};
}

// The same model without sharding: only `up` in bfloat16.
std::map<std::string, Tensor> GradientsWritten(const Routed& masters) {
  Routed copy = MakeRouted();
  {
    const torch::NoGradGuard no_grad;
    const auto from = masters->named_parameters();
    for (const auto& item : copy->named_parameters()) {
      item.value().copy_(from[item.key()]);
    }
  }
  copy->up->to(kBFloat16);
  // As at the boundary of the module.
  const Tensor x = RoutedInput().to(kBFloat16);
  const Tensor h = copy->norm(x);
  const Tensor chances = torch::softmax(copy->router(h.to(kFloat)), -1);
  const Tensor y = copy->up(h.to(kBFloat16));
  (y * chances.narrow(-1, 0, 1).to(kBFloat16)).sum().backward();
  std::map<std::string, Tensor> gradients;
  for (const auto& item : copy->named_parameters()) {
    std::vector<Tensor> sum{item.value().grad().to(kFloat).contiguous()};
    world_group()->allreduce(sum)->wait();
    gradients[item.key()] = sum[0] / get_world_size();
  }
  return gradients;
}

void ExpectKeptParametersTrain() {
  StartRank();
  Routed masters = MakeRouted();
  Routed model = MakeRouted();
  FSDPModule module = fully_shard(model, {.mp_policy = KeepNormAndRouter()});
  CountingBackend& counts =
      Count(module.state()->group()->config().shard_group);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  torch::optim::SGD master_optimizer(masters->parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    counts.Reset();
    forward(model, RoutedInput()).sum().backward();
    // One group gathers both dtypes, and one collective reduces both.
    if (get_world_size() > 1) {
      EXPECT_EQ(counts.ToString(), "all_gather 1, reduce_scatter 1");
    }
    const auto want = GradientsWritten(masters);
    for (const auto& [name, parameter] : named_parameters(*model)) {
      EXPECT_EQ(parameter.scalar_type(), kFloat) << name;
      EXPECT_EQ(parameter.grad()->scalar_type(), kFloat) << name;
      EXPECT_TRUE(torch::allclose(parameter.grad()->full_tensor(),
                                  want.at(name), 1e-5, 1e-6))
          << "step " << step << " " << name;
    }
    optimizer.step();
    for (const auto& item : masters->named_parameters()) {
      item.value().mutable_grad() = want.at(item.key());
    }
    master_optimizer.step();
  }
}

TEST(ParamDtypeOverride, TrainsOnOneRank) {
  RunRanks(1, ExpectKeptParametersTrain);
}
TEST(ParamDtypeOverride, TrainsOnTwoRanks) {
  RunRanks(2, ExpectKeptParametersTrain);
}
TEST(ParamDtypeOverride, TrainsOnThreeRanks) {
  RunRanks(3, ExpectKeptParametersTrain);
}
TEST(ParamDtypeOverride, TrainsOnFourRanks) {
  RunRanks(4, ExpectKeptParametersTrain);
}

TEST(ParamDtypeOverride, GathersEachParameterInItsDtype) {
  RunRanks(2, [] {
    StartRank();
    Routed model = MakeRouted();
    FSDPModule module = fully_shard(model, {.mp_policy = KeepNormAndRouter()});
    CountingBackend& counts =
        Count(module.state()->group()->config().shard_group);
    module.unshard();
    EXPECT_EQ(model->norm->weight.scalar_type(), kFloat);
    EXPECT_EQ(model->router->bias.scalar_type(), kFloat);
    EXPECT_EQ(model->up->weight.scalar_type(), kBFloat16);
    // A half of each: the norm and the router in float32, `up` in bfloat16.
    // Each begins at a multiple of 16 bytes.
    EXPECT_EQ(counts.bytes("all_gather"), 16 + 16 + 32 + 16 + 48 + 16);
    const Routed fresh = MakeRouted();
    EXPECT_TRUE(model->norm->weight.equal(fresh->norm->weight));
    EXPECT_TRUE(model->router->weight.equal(fresh->router->weight));
    EXPECT_TRUE(model->up->weight.equal(fresh->up->weight.to(kBFloat16)));
  });
}

TEST(ParamDtypeOverride, IsAskedOnceForEachParameter) {
  RunRanks(2, [] {
    StartRank();
    Routed model = MakeRouted();
    std::map<std::string, int> asked;
    MixedPrecisionPolicy policy{
        .param_dtype = kBFloat16,
        .param_dtype_override_fn =
            [&asked](const std::string& name,
                     const Tensor& p) -> std::optional<at::ScalarType> {
          ++asked[name];
          EXPECT_FALSE(p.sizes().empty());
          return std::nullopt;
        }};
    fully_shard(model->up, {.mp_policy = policy});
    fully_shard(model, {.mp_policy = policy});
    for (int step = 0; step < 2; ++step) {
      forward(model, RoutedInput()).sum().backward();
    }
    EXPECT_THAT(asked, UnorderedElementsAre(
                           Pair("weight", 1), Pair("bias", 1),
                           Pair("norm.weight", 1), Pair("norm.bias", 1),
                           Pair("router.weight", 1), Pair("router.bias", 1)));
  });
}

// `a` and `b`, which share a weight, are one parameter.
TEST(ParamDtypeOverride, IsAskedOnceForATiedParameter) {
  RunRanks(2, [] {
    StartRank();
    torch::nn::Sequential model(torch::nn::Linear(4, 4),
                                torch::nn::Linear(4, 4));
    auto& first = *model[0]->as<torch::nn::Linear>();
    auto& second = *model[1]->as<torch::nn::Linear>();
    second.weight = first.weight;
    ParameterRegistry(second)["weight"] = first.weight;
    std::vector<std::string> asked;
    fully_shard(model, {.mp_policy = {
                            .param_dtype = kBFloat16,
                            .param_dtype_override_fn =
                                [&asked](const std::string& name, const Tensor&)
                                -> std::optional<at::ScalarType> {
                              asked.push_back(name);
                              return std::nullopt;
                            }}});
    EXPECT_THAT(asked, ElementsAre("0.weight", "0.bias", "1.bias"));
  });
}

MixedPrecisionPolicy Answering(std::optional<at::ScalarType> param_dtype,
                               at::ScalarType answer) {
  return {.param_dtype = param_dtype,
          .param_dtype_override_fn =
              [answer](const std::string& name,
                       const Tensor&) -> std::optional<at::ScalarType> {
            if (name != "bias") return std::nullopt;
            return answer;
          }};
}

TEST(ParamDtypeOverride, MayGiveThePolicysDtypeOrTheParametersOwn) {
  RunRanks(2, [] {
    StartRank();
    for (const at::ScalarType answer : {kBFloat16, kFloat}) {
      torch::nn::Linear linear(4, 4);
      FSDPModule module =
          fully_shard(linear, {.mp_policy = Answering(kBFloat16, answer)});
      module.unshard();
      EXPECT_EQ(linear->weight.scalar_type(), kBFloat16);
      EXPECT_EQ(linear->bias.scalar_type(), answer);
    }
    torch::nn::Linear linear(4, 4);
    FSDPModule module =
        fully_shard(linear, {.mp_policy = Answering(std::nullopt, kFloat)});
    module.unshard();
    EXPECT_EQ(linear->bias.scalar_type(), kFloat);
  });
}

TEST(ParamDtypeOverride, RefusesOtherDtypesBeforeAnyCollective) {
  for (const int ranks : {1, 2, 4}) {
    RunRanks(ranks, [] {
      StartRank();
      CountingBackend& counts = Count(world_group());
      torch::nn::Linear linear(4, 4);
      const ModuleSnapshot before(*linear);
      for (const at::ScalarType answer : {kHalf, kDouble, at::kLong}) {
        ExpectError<c10::ValueError>(
            [&] {
              fully_shard(linear, {.mp_policy = Answering(kBFloat16, answer)});
            },
            {"param_dtype_override_fn gives ", c10::toString(answer),
             " for 'bias'; it must give nothing, the policy's param_dtype, "
             "BFloat16, or the parameter's own dtype, Float"});
      }
      ExpectError<c10::ValueError>(
          [&] {
            fully_shard(linear,
                        {.mp_policy = Answering(std::nullopt, kBFloat16)});
          },
          {"gives BFloat16 for 'bias'; it must give nothing or the "
           "parameter's own dtype, Float"});
      EXPECT_EQ(counts.calls(), 0);
      before.ExpectSame(*linear);
    });
  }
}

TEST(ParamDtypeOverride, RanksThatAnswerDifferentlyAreNamed) {
  RunRanks(2, [] {
    StartRank();
    torch::nn::Linear linear(4, 4);
    fully_shard(linear, {.mp_policy = Answering(
                             kBFloat16, get_rank() == 0 ? kFloat : kBFloat16)});
    EXPECT_THAT(
        ThrownMessage([&] {
          linear(torch::ones({2, 4}));
        }),
        AllOf(HasSubstr("rank 0 is at the all-gather of the root with 'bias' "
                        "in Float for aten::"),
              HasSubstr("rank 1 is at the all-gather of the root for")));
  });
}

TEST(ParamDtypeOverride, InputsAreStillCastToThePolicysDtype) {
  RunRanks(2, [] {
    StartRank();
    Routed model = MakeRouted();
    fully_shard(model, {.mp_policy = KeepNormAndRouter()});
    forward(model, RoutedInput());
    EXPECT_EQ(model->inputs["norm"], kBFloat16);
    EXPECT_EQ(model->outputs["router"], kFloat);
    EXPECT_EQ(model->outputs["up"], kBFloat16);
    // Without a boundary nothing is cast for the norm, which keeps its dtype.
    model->forward(RoutedInput());
    EXPECT_EQ(model->inputs["norm"], kFloat);
    EXPECT_EQ(model->outputs["up"], kBFloat16);
  });
}

TEST(ParamDtypeOverride, ReachesAnAllGatherExtension) {
  RunRanks(2, [] {
    StartRank();
    torch::nn::Linear linear(4, 4);
    std::map<std::string, std::optional<at::ScalarType>> seen;
    fully_shard(
        linear,
        {.mp_policy = Answering(kBFloat16, kFloat),
         .all_gather_extension_fn = [&seen](const std::string& name,
                                            const Tensor&) {
           return AllGatherExtension{
               .pre_all_gather =
                   [&seen, name](const Tensor& shard,
                                 const AllGatherExtension::Context& context) {
                     seen[name] = context.param_dtype;
                     return AllGatherExtension::Inputs{
                         .tensors = {shard.contiguous()}, .metadata = {}};
                   },
               .post_all_gather = [](const std::vector<Tensor>& outputs,
                                     const std::vector<Tensor>&,
                                     Tensor dst) { dst.copy_(outputs[0]); }};
         }});
    get_fsdp_module(*linear).unshard();
    EXPECT_EQ(seen["weight"], kBFloat16);
    EXPECT_EQ(seen["bias"], kFloat);
    EXPECT_EQ(linear->bias.scalar_type(), kFloat);
  });
}

}  // namespace
}  // namespace fsdp::testing
