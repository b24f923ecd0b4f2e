// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/tensor/styles.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/forward.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/module/init_defaults.h"
#include "fsdp/parallel/activation.h"
#include "fsdp/parallel/tensor/parallelize_module.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::HasSubstr;

torch::nn::Sequential MakeMlp() {
  torch::manual_seed(2);
  return torch::nn::Sequential(torch::nn::Linear(4, 6), torch::nn::GELU(),
                               torch::nn::Linear(6, 5));
}

torch::Tensor Input() {
  return torch::linspace(-1, 1, 2 * 3 * 4).view({2, 3, 4});
}

struct StylesCase {
  std::string name;
  ParallelStyle first;
  ParallelStyle last;
};

// Every pair of styles computes the same as the whole module.
TEST(Styles, ForALinearKeepTheResults) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const std::vector<StylesCase> cases = {
        {"colwise, rowwise", ColwiseParallel(), RowwiseParallel()},
        {"rowwise, colwise", RowwiseParallel(), ColwiseParallel()},
        {"gathered between", ColwiseParallel({.output_layouts = Replicate()}),
         RowwiseParallel()},
        {"scattered", RowwiseParallel({.output_layouts = Shard(1)}),
         ColwiseParallel({.output_layouts = Replicate()})},
        {"partial", RowwiseParallel({.output_layouts = Partial()}),
         RowwiseParallel({.output_layouts = Shard(0)})},
        {"replicated", ReplicateParallel(), ReplicateParallel()}};
    for (const StylesCase& c : cases) {
      SCOPED_TRACE(c.name);
      torch::nn::Sequential model = MakeMlp();
      torch::nn::Sequential whole = MakeMlp();
      parallelize_module(model, tp, {{"0", c.first}, {"2", c.last}});
      torch::Tensor x = Input().set_requires_grad(true);
      torch::Tensor y = Input().set_requires_grad(true);
      const torch::Tensor out = full_tensor(model->forward(x));
      const torch::Tensor expected = whole->forward(y);
      EXPECT_TRUE(torch::allclose(out, expected, 1e-12));
      out.square().sum().backward();
      expected.square().sum().backward();
      EXPECT_TRUE(torch::allclose(x.grad(), y.grad(), 1e-12));
      const auto reference = whole->named_parameters();
      for (const auto& [name, parameter] : named_parameters(*model)) {
        EXPECT_TRUE(torch::allclose(parameter.grad()->full_tensor(),
                                    reference[name].grad(), 1e-12))
            << name;
      }
    }
  });
}

// torch::nn compares a padding_idx with the rows that the member has.
TEST(Styles, AnEmbeddingMayHavePaddingInAnyRow) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const auto tokens = torch::arange(22).mul(3).remainder(11).view({2, 11});
    for (const ParallelStyle& style : {RowwiseParallel(), ColwiseParallel()}) {
      for (const int64_t padding : {0, 4, 7, 10, -2}) {
        SCOPED_TRACE(absl::StrCat(to_string(style), " ", padding));
        const auto make = [&] {
          torch::manual_seed(1);
          return torch::nn::Sequential(torch::nn::Embedding(
              torch::nn::EmbeddingOptions(11, 5).padding_idx(padding)));
        };
        torch::nn::Sequential model = make(), whole = make();
        parallelize_module(model, tp, {{"0", style}});
        const torch::Tensor out = full_tensor(model->forward(tokens));
        const torch::Tensor expected = whole->forward(tokens);
        EXPECT_TRUE(torch::equal(out, expected));
        out.square().sum().backward();
        expected.square().sum().backward();
        EXPECT_TRUE(torch::allclose(parameters(*model)[0].grad()->full_tensor(),
                                    whole->parameters()[0].grad()));
        // The row is still the one that initialisation sets to zero.
        init::default_(*model, /*seed=*/3);
        const torch::Tensor weight = parameters(*model)[0].full_tensor();
        EXPECT_EQ(weight[padding].abs().sum().item<double>(), 0);
        EXPECT_NE(weight[3].abs().sum().item<double>(), 0);
      }
    }
  });
}

TEST(Styles, TiedEmbeddingsHaveOnePadding) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const torch::nn::EmbeddingOptions options(6, 4);
    torch::nn::Embedding first(options), second(options);
    torch::nn::Sequential model(first, second);
    second->weight = first->weight;
    ParameterRegistry(*second)["weight"] = first->weight;
    second->options.padding_idx(5);
    EXPECT_THAT(
        ThrownMessage([&] {
          parallelize_module(model, tp, {{"*", RowwiseParallel()}});
        }),
        HasSubstr("the Embedding '1' is tied to one with another padding_idx"));
    EXPECT_EQ(second->options.padding_idx(), 5);
  });
}

// A slice along the cut sequence gathers an activation like any other.
TEST(Styles, ForACutSequenceReachMixedPrecision) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh mesh = init_device_mesh("cpu", {1, 2}, {"dp", "tp"});
    const DeviceMesh tp = mesh["tp"];
    torch::nn::Linear body(4, 6), head(6, 5);
    parallelize_module(body, tp,
                       {{"", RowwiseParallel({.output_layouts = Shard(1)})}});
    const torch::Tensor first =
        body(torch::linspace(-1, 1, 2 * 4 * 4).view({2, 4, 4})).select(1, 0);
    fully_shard(head, {.mesh = mesh["dp"],
                       .mp_policy = {.param_dtype = torch::kFloat}});
    EXPECT_EQ(head(first).scalar_type(), torch::kFloat);
  });
}

TEST(Styles, LocalInputsAndOutputsArePlainParts) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    torch::nn::Sequential model = MakeMlp();
    torch::nn::Sequential whole = MakeMlp();
    parallelize_module(model, tp,
                       {{"0", ColwiseParallel({.use_local_output = true})},
                        {"2", RowwiseParallel({.input_layouts = Shard(-1),
                                               .use_local_output = true})}});
    torch::Tensor x = Input().set_requires_grad(true);
    const torch::Tensor hidden =
        model->children()[0]->as<torch::nn::Linear>()->forward(x);
    EXPECT_TRUE(layout_of(hidden).empty());
    EXPECT_EQ(hidden.size(-1), 3);
    const torch::Tensor out = model->forward(x);
    EXPECT_TRUE(layout_of(out).empty());
    EXPECT_TRUE(torch::allclose(out, whole->forward(Input()), 1e-12));
    out.sum().backward();
    torch::Tensor y = Input().set_requires_grad(true);
    whole->forward(y).sum().backward();
    EXPECT_TRUE(torch::allclose(x.grad(), y.grad(), 1e-12));
  });
}

TEST(Styles, PrepareInputsAndOutputsAtTheBoundary) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    torch::nn::Linear model(4, 4);
    parallelize_module(
        model, tp,
        {{"", PrepareModuleInputOutput({.input_layouts = {Shard(0)},
                                        .desired_input_layouts = {Replicate()},
                                        .output_layouts = {Replicate()},
                                        .desired_output_layouts = {Shard(1)},
                                        .use_local_output = true})}});
    const torch::Tensor whole = torch::arange(16.0).view({4, 4});
    const torch::Tensor part = whole.narrow(0, 2 * get_rank(), 2);
    torch::manual_seed(1);
    const torch::NoGradGuard no_grad;
    model->weight.fill_(1);
    const torch::Tensor out = fsdp::forward(model, part);
    EXPECT_TRUE(layout_of(out).empty());
    EXPECT_TRUE(
        torch::allclose(out, torch::linear(whole, model->weight, model->bias)
                                 .narrow(1, 2 * get_rank(), 2)));
    EXPECT_THAT(ThrownMessage([] {
                  PrepareModuleInput({.input_layouts = {Shard(0)},
                                      .desired_input_layouts = {}});
                }),
                HasSubstr("input_layouts has 1 elements and "
                          "desired_input_layouts has 0"));
  });
}

TEST(Styles, RefuseOtherModules) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh mesh = init_device_mesh("cpu", {1, 2}, {"dp", "tp"});
    const DeviceMesh tp = mesh["tp"];
    torch::nn::Sequential model(torch::nn::Conv1d(2, 2, 1),
                                torch::nn::Linear(4, 4));
    const auto parallelize = [&](const DeviceMesh& on,
                                 const ParallelizePlan& plan) {
      return ThrownMessage([&] { parallelize_module(model, on, plan); });
    };
    EXPECT_THAT(parallelize(tp, {{"0", ColwiseParallel()}}),
                HasSubstr("'0' is a torch::nn::Conv1dImpl, but "
                          "ColwiseParallel is for torch::nn::Linear"));
    EXPECT_THAT(parallelize(mesh, {{"1", ColwiseParallel()}}),
                HasSubstr("slice it"));
    fully_shard(model, {.mesh = mesh["dp"]});
    EXPECT_THAT(parallelize(tp, {{"1", ColwiseParallel()}}),
                HasSubstr("Parallelize first"));
  });
}

}  // namespace
}  // namespace fsdp::testing
