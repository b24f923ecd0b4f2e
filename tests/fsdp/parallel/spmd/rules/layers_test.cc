// SPDX-License-Identifier: Apache-2.0
// Normalizations, lookups, attention, losses and random numbers: see op_case.h.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/parallel/spmd/handler.h"
#include "fsdp/parallel/spmd/rules/rules.h"
#include "fsdp/parallel/tensor/parallelize_module.h"
#include "gtest/gtest.h"
#include "tests/fsdp/parallel/spmd/rules/op_case.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::spmd {
namespace {

using T = Tensors;
namespace F = torch::nn::functional;

std::vector<OpCase> Norms() {
  return {
      Case("layer_norm", {{{3, 4, 5}}, {{5}}, {{5}}},
           [](const T& x) { return at::layer_norm(x[0], {5}, x[1], x[2]); },
           {"0:2"}),
      Case("layer_norm without weights", {{{4, 5}}},
           [](const T& x) { return at::layer_norm(x[0], {5}); }, {"0:1"}),
      Case("rms_norm", {{{3, 4, 5}}, {{5}}},
           [](const T& x) { return at::rms_norm(x[0], {5}, x[1], 1e-6); },
           {"0:2"}),
      Case("group_norm", {{{3, 4, 5}}, {{4}}, {{4}}},
           [](const T& x) { return at::group_norm(x[0], 2, x[1], x[2]); },
           {"0:1", "0:2"}),
  };
}

std::vector<OpCase> Lookups() {
  return {
      Case("embedding", {{{7, 3}}, Index({2, 5}, 7)},
           [](const T& x) { return at::embedding(x[0], x[1]); }, {"0:pieces"}),
      Case("embedding with padding", {{{5, 3}}, Index({4, 3}, 5)},
           [](const T& x) { return at::embedding(x[0], x[1], 3); }),
      Case("embedding of few rows", {{{2, 3}}, Index({4}, 2)},
           [](const T& x) { return at::embedding(x[0], x[1], 0); },
           {"0:pieces"}),
      Case("embedding that counts", {{{5, 3}}, Index({4, 3}, 5)},
           [](const T& x) { return at::embedding(x[0], x[1], -1, true); },
           {"0:0", "1:*"}),
  };
}

at::Tensor Attend(const T& x, const std::optional<at::Tensor>& mask,
                  bool is_causal, bool grouped = false) {
  return at::scaled_dot_product_attention(x[0], x[1], x[2], mask, 0, is_causal,
                                          std::nullopt, grouped);
}

std::vector<OpCase> Attention() {
  const std::vector<std::string> no_feature = {"0:3", "1:3", "2:3", "1:2",
                                               "2:2"};
  const Input q{{2, 3, 5, 4}};
  const Input k{{2, 3, 6, 4}};
  return {
      Case(
          "attention", {q, k, k},
          [](const T& x) { return Attend(x, std::nullopt, false); },
          no_feature),
      Case(
          "causal attention", {q, q, q},
          [](const T& x) { return Attend(x, std::nullopt, true); }, no_feature),
      Case("attention with a bias", {q, k, k, {{5, 6}}},
           [](const T& x) { return Attend(x, x[3], false); },
           {"0:3", "1:3", "2:3", "1:2", "2:2", "3:*"}),
      Case("attention with a mask", {q, k, k, {{2, 1, 5, 6}}},
           [](const T& x) { return Attend(x, x[3], false); },
           {"0:3", "1:3", "2:3", "1:2", "2:2", "3:*"}),
      Case("attention of groups",
           {{{2, 6, 4, 2}}, {{2, 2, 4, 2}}, {{2, 2, 4, 2}}},
           [](const T& x) { return Attend(x, std::nullopt, true, true); },
           {"0:3", "1:*", "2:*"}),
      Case("attention without heads", {{{6, 5, 4}}, {{6, 5, 4}}, {{6, 5, 4}}},
           [](const T& x) { return Attend(x, std::nullopt, true); },
           {"0:2", "1:1", "1:2", "2:1", "2:2"}),
      Case("attention that drops", {q, q, q},
           [](const T& x) {
             return at::scaled_dot_product_attention(x[0], x[1], x[2], {}, 0.5);
           },
           {"0:*", "1:*", "2:*"}),
  };
}

OpCase CrossEntropy(const std::string& name, Input x, Input target,
                    F::CrossEntropyFuncOptions options) {
  return Case(
      name, {std::move(x), std::move(target)},
      [options](const T& t) { return F::cross_entropy(t[0], t[1], options); },
      {"0:pieces", "1:*"});
}

std::vector<OpCase> ClassLosses() {
  using Options = F::CrossEntropyFuncOptions;
  const at::Tensor weight = torch::linspace(0.5, 2, 5, torch::kDouble);
  return {
      CrossEntropy("cross_entropy", {{6, 5}}, Index({6}, 5), Options()),
      CrossEntropy("cross_entropy of two classes", {{4, 2}}, Index({4}, 2),
                   Options()),
      CrossEntropy("summed", {{6, 5}}, Index({6}, 5),
                   Options().reduction(torch::kSum)),
      CrossEntropy("each", {{6, 5}}, Index({6}, 5),
                   Options().reduction(torch::kNone)),
      CrossEntropy("ignoring", {{6, 5}}, Index({6}, 5),
                   Options().ignore_index(2)),
      CrossEntropy("weighted", {{6, 5}}, Index({6}, 5),
                   Options().weight(weight).ignore_index(0)),
      CrossEntropy("smoothed", {{6, 5}}, Index({6}, 5),
                   Options().label_smoothing(0.2).ignore_index(3)),
      CrossEntropy("smoothed and weighted", {{6, 5}}, Index({6}, 5),
                   Options().weight(weight).label_smoothing(0.2)),
      CrossEntropy("of pixels", {{2, 5, 3}}, Index({2, 3}, 5),
                   Options().weight(weight)),
      CrossEntropy("of one row", {{5}}, Index({}, 5), Options()),
      Case("of probabilities", {{{6, 5}}, Positive({6, 5})},
           [](const T& x) { return F::cross_entropy(x[0], x[1]); },
           {"0:*", "1:*"}),
      Case("nll_loss", {{{6, 5}}, Index({6}, 5)},
           [weight](const T& x) {
             return at::nll_loss(x[0], x[1], weight, at::Reduction::Mean, 2);
           },
           {"0:pieces", "1:*"}),
      Case("nll_loss of pixels", {{{2, 5, 3}}, Index({2, 3}, 5)},
           [](const T& x) {
             return F::nll_loss(x[0], x[1],
                                F::NLLLossFuncOptions().reduction(torch::kSum));
           },
           {"0:pieces", "1:*"}),
  };
}

std::vector<OpCase> ElementLosses() {
  return {
      Case("mse_loss", {{{4, 5}}, {{4, 5}}},
           [](const T& x) { return at::mse_loss(x[0], x[1]); }),
      Case("mse_loss of each", {{{4, 5}}, {{4, 5}}},
           [](const T& x) {
             return at::mse_loss(x[0], x[1], at::Reduction::None);
           }),
      Case("l1_loss", {{{4, 5}}, {{4, 5}}},
           [](const T& x) {
             return at::l1_loss(x[0], x[1], at::Reduction::Sum);
           }),
      Case("smooth_l1_loss", {{{4, 5}}, {{4, 5}}},
           [](const T& x) { return at::smooth_l1_loss(x[0], x[1]); }),
      Case("binary_cross_entropy_with_logits",
           {{{4, 5}}, Positive({4, 5}), Positive({5})},
           [](const T& x) {
             return at::binary_cross_entropy_with_logits(x[0], x[1].detach(),
                                                         {}, x[2].detach());
           }),
  };
}

std::vector<OpCase> RandomNumbers() {
  return {
      Case("dropout", {{{4, 5}}},
           [](const T& x) { return at::dropout(x[0], 0.4, true); }),
      Case("dropout twice", {{{4, 5}}, {{4, 5}}},
           [](const T& x) {
             return at::dropout(x[0], 0.4, true) + at::dropout(x[1], 0.4, true);
           }),
      Case("no dropout", {{{4, 5}}},
           [](const T& x) { return at::dropout(x[0], 0.4, false); }),
      Case("dropout_", {{{4, 5}}},
           [](const T& x) {
             at::Tensor y = x[0] * 2;
             at::dropout_(y, 0.4, true);
             return y;
           }),
      Case("rand_like", {{{4, 5}}},
           [](const T& x) { return x[0] + at::rand_like(x[0]); }),
      Case(
          "randint_like", {{{4, 5}}},
          [](const T& x) { return at::randint_like(x[0].detach(), 7) + x[0]; }),
      Case("normal_", {{{4, 5}}},
           [](const T& x) { return x[0].clone().normal_() + x[0]; }),
      Case("bernoulli_", {{{4, 5}}},
           [](const T& x) { return x[0].clone().bernoulli_(0.5); }),
      Case("another generator", {{{4, 5}}},
           [](const T& x) {
             return x[0] + at::rand_like(x[0],
                                         at::detail::createCPUGenerator(3),
                                         at::TensorOptions());
           },
           {"0:*"}),
      Case("zeros_like", {{{4, 5}}},
           [](const T& x) { return at::zeros_like(x[0]) + x[0]; }),
      Case("ones_like", {{{4, 5}}},
           [](const T& x) { return at::ones_like(x[0]) + x[0]; }),
      Case("new_zeros", {{{4, 5}}},
           [](const T& x) {
             return x[0].new_zeros({2, 3}) + 1;
           }),
      Case(
          "item", {{{4, 5}}},
          [](const T& x) { return x[0] * x[0].detach().sum().item<double>(); }),
  };
}

torch::nn::Sequential MakeModel() {
  torch::manual_seed(1);
  torch::nn::Sequential model(
      torch::nn::Embedding(torch::nn::EmbeddingOptions(7, 4).padding_idx(2)),
      torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})),
      torch::nn::Linear(4, 6));
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.normal_();
  return model;
}

// With a table, a norm and logits under a plan, the loss and all gradients are
// equal to the whole module's.
void CheckPlan(const ParallelizePlan& plan, const DeviceMesh& mesh) {
  const at::Tensor tokens = torch::tensor({{0, 6, 2, 3}, {5, 5, 1, 6}});
  const at::Tensor targets = torch::tensor({0, 1, 2, 3, 4, 5, 0, 5});
  const auto loss_of = [&](torch::nn::Sequential& model) {
    return F::cross_entropy(model->forward(tokens).flatten(0, 1), targets);
  };
  torch::nn::Sequential whole = MakeModel();
  torch::nn::Sequential model = MakeModel();
  parallelize_module(model, mesh, plan);
  gathered_operators(/*reset=*/true);
  const at::Tensor expected = loss_of(whole);
  const at::Tensor actual = loss_of(model);
  EXPECT_TRUE(at::allclose(actual, expected, 1e-12));
  EXPECT_TRUE(gathered_operators().empty());
  expected.backward();
  actual.backward();
  const auto reference = whole->named_parameters();
  for (const auto& [name, parameter] : named_parameters(*model)) {
    EXPECT_TRUE(at::allclose(parameter.grad()->full_tensor(),
                             reference[name].grad(), 1e-10))
        << name;
  }
}

TEST(LayerRules, StylesForTablesAndNorms) {
  testing::RunRanks(2, [] {
    testing::StartRankInDouble();
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const ParallelStyleOptions scatter{.output_layouts = fsdp::Shard(1)};
    CheckPlan({{"0", RowwiseParallel(scatter)},
               {"1", SequenceParallel()},
               {"2", ColwiseParallel()}},
              tp);
    CheckPlan({{"0", RowwiseParallel()}, {"2", ColwiseParallel()}}, tp);
    CheckPlan({{"0", ColwiseParallel({.output_layouts = Replicate()})},
               {"1", SequenceParallel()},
               {"2", RowwiseParallel()}},
              tp);
    CheckPlan({{"1", SequenceParallel()}}, tp);
  });
}

TEST(LayerRules, NormsMatchTheWhole) { CheckOnRanks(Norms()); }

TEST(LayerRules, LookupsMatchTheWhole) { CheckOnRanks(Lookups()); }

TEST(LayerRules, AttentionMatchesTheWhole) { CheckOnRanks(Attention()); }

TEST(LayerRules, ClassLossesMatchTheWhole) { CheckOnRanks(ClassLosses()); }

TEST(LayerRules, ElementLossesMatchTheWhole) { CheckOnRanks(ElementLosses()); }

TEST(LayerRules, RandomNumbersMatchTheWhole) { CheckOnRanks(RandomNumbers()); }

}  // namespace
}  // namespace fsdp::spmd
