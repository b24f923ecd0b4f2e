// SPDX-License-Identifier: Apache-2.0
// The calls that the engine refuses outside forward and backward, so that a
// mistake on one rank is an error there and does not hang all of them.

#include <memory>
#include <string>
#include <vector>

#include "fsdp/engine/lazy_key.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/forward.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/module_snapshot.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::HasSubstr;

void InitRank() {
  at::set_num_threads(1);
  init_process_group();
}

// The first operator takes only parameters.
struct LowRankImpl : torch::nn::Module {
  LowRankImpl() {
    a = register_parameter("a", torch::ones({4, 2}) * 3);
    b = register_parameter("b", torch::ones({2, 4}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return x.matmul(a.matmul(b));
  }
  torch::Tensor a, b;
};
TORCH_MODULE(LowRank);

TEST(StrictMode, ReadingAShardedParameterIsRefused) {
  RunRanks(2, [] {
    InitRank();
    torch::manual_seed(1);
    torch::nn::Linear layer(4, 4);
    const torch::Tensor whole = layer->weight.detach().clone();
    const torch::Tensor bias = layer->bias.detach().clone();
    fully_shard(layer);
    const std::vector<std::string> says = {
        "'weight'", "sharded", "full_tensor()", "named_parameters()"};
    // Only on one rank, where a gather would never end.
    if (get_rank() == 0) {
      ExpectError<c10::Error>([&] { layer->weight.sum(); }, says);
      ExpectError<c10::Error>([&] { layer->weight.norm().item<double>(); },
                              says);
      ExpectError<c10::Error>([&] { layer->weight.clone(); }, says);
      ExpectError<c10::Error>([&] { layer->weight[0][0].item<double>(); },
                              says);
      ExpectError<c10::Error>([&] { layer->weight + 1; }, says);
      ExpectError<c10::Error>([&] { torch::cat({layer->weight}); }, says);
      ExpectError<c10::Error>([&] { layer->bias.to(torch::kDouble); },
                              {"'bias'", "full_tensor()"});
    }
    // Calls that do not need data are allowed everywhere, and so are shards.
    EXPECT_EQ(layer->weight.sizes(), (std::vector<int64_t>{4, 4}));
    EXPECT_EQ(layer->weight.t().size(0), 4);
    EXPECT_EQ(
        layer->named_parameters()["weight"].sum().item<float>(),
        whole.chunk(2)[static_cast<size_t>(get_rank())].sum().item<float>());
    EXPECT_TRUE(dtensor_of(layer->weight)->full_tensor().equal(whole));
    // The refused calls left everything usable.
    const torch::Tensor x = torch::ones({1, 4});
    EXPECT_TRUE(torch::allclose(layer(x), torch::linear(x, whole, bias)));
  });
}

TEST(StrictMode, WritingIntoAParameterIsRefused) {
  RunRanks(2, [] {
    InitRank();
    torch::nn::Linear layer(4, 4);
    FSDPModule handle = fully_shard(layer);
    handle.unshard();
    const torch::NoGradGuard no_grad;
    const torch::Tensor before = layer->weight.clone();
    const std::vector<std::string> says = {"writes into", "'weight'",
                                           "named_parameters()"};
    ExpectError<c10::Error>([&] { layer->weight.zero_(); }, says);
    ExpectError<c10::Error>([&] { layer->weight.add_(1); }, says);
    ExpectError<c10::Error>([&] { layer->weight.copy_(before); }, says);
    ExpectError<c10::Error>([&] { layer->weight[1].fill_(2); }, says);
    ExpectError<c10::Error>([&] { layer->weight.t().mul_(2); }, says);
    ExpectError<c10::Error>(
        [&] { torch::add_out(layer->weight, before, before); }, says);
    ExpectError<c10::Error>([&] { torch::nn::init::ones_(layer->weight); },
                            says);
    EXPECT_TRUE(layer->weight.equal(before));
    // Shards may be written; the next gather sees it.
    layer->named_parameters()["weight"].fill_(5);
    handle.reshard();
    handle.unshard();
    EXPECT_TRUE(layer->weight.equal(torch::full({4, 4}, 5.0)));
    handle.reshard();
    ExpectError<c10::Error>([&] { layer->weight.zero_(); }, says);
  });
}

TEST(StrictMode, UseAfterTheModuleIsGoneIsRefused) {
  if (!is_initialized()) init_process_group();
  torch::Tensor weight;
  torch::Tensor row;
  {
    torch::nn::Linear layer(4, 4);
    fully_shard(layer);
    weight = layer->weight;
    row = weight[0];
  }
  const std::vector<std::string> says = {"after its module was destroyed"};
  ExpectError<c10::Error>([&] { weight.sum(); }, says);
  ExpectError<c10::Error>([&] { row + torch::ones({4}); }, says);
  ExpectError<c10::Error>(
      [&] {
        torch::linear(torch::ones({1, 4}), weight);
      },
      says);
  EXPECT_FALSE(dtensor_of(weight).has_value());
}

TEST(StrictMode, BackwardAfterTheModuleIsGoneIsRefused) {
  RunRanks(2, [] {
    InitRank();
    torch::Tensor loss;
    {
      torch::nn::Linear layer(4, 4);
      fully_shard(layer, {.reshard_after_forward = true});
      loss = fsdp::forward(layer,
                           torch::ones({2, 4}, torch::kFloat).requires_grad_())
                 .pow(2)
                 .sum();
    }
    ExpectError<c10::Error>([&] { loss.backward(); },
                            {"after its module was destroyed"});
  });
}

TEST(StrictMode, ShardsKeepTheEngineAlive) {
  RunRanks(2, [] {
    InitRank();
    std::vector<torch::Tensor> held;
    {
      torch::nn::Linear layer(4, 4);
      fully_shard(layer);
      held = layer->parameters();
    }
    // References like those that an optimizer holds.
    EXPECT_TRUE(dtensor_of(held[0]).has_value());
    EXPECT_EQ(dtensor_of(held[0])->full_tensor().sizes(),
              (std::vector<int64_t>{4, 4}));
  });
}

TEST(StrictMode, CopiesOfTheModuleAreRefused) {
  if (!is_initialized()) init_process_group();
  torch::nn::Linear layer(4, 4);
  EXPECT_TRUE(layer->clone() != nullptr);
  fully_shard(layer);
  // This is LibTorch's own message; a copy would have shards where code expects
  // whole tensors.
  const std::string says = "The cloned module does not have the same number";
  EXPECT_THAT(ThrownMessage([&] { layer->clone(); }), HasSubstr(says));
  torch::nn::Sequential model(layer, torch::nn::ReLU());
  EXPECT_THAT(ThrownMessage([&] { model->clone(); }), HasSubstr(says));
  EXPECT_EQ(layer(torch::ones({1, 4})).size(1), 4);
  EXPECT_TRUE(layer->named_buffers().is_empty());
}

TEST(StrictMode, ForwardScopeAllowsParametersAlone) {
  RunRanks(2, [] {
    InitRank();
    LowRank module;
    fully_shard(module);
    const torch::Tensor x = torch::ones({1, 4});
    EXPECT_FALSE(ForwardScope::active());
    ExpectError<c10::Error>([&] { module->forward(x); },
                            {"'a'", "matmul", "ForwardScope"});
    const torch::Tensor want = torch::full({1, 4}, 24.0);
    {
      const ForwardScope scope;
      EXPECT_TRUE(ForwardScope::active());
      const torch::Tensor out = module->forward(x);
      EXPECT_TRUE(out.equal(want));
      out.sum().backward();
    }
    EXPECT_FALSE(ForwardScope::active());
    EXPECT_TRUE(parameters(*module)[0].grad()->full_tensor().equal(
        torch::full({4, 2}, 4.0)));
    // fsdp::forward opens such a scope.
    EXPECT_TRUE(fsdp::forward(module, x).equal(want));
    EXPECT_FALSE(ForwardScope::active());
    // The scope ends when an error is thrown, too.
    ExpectError<c10::Error>(
        [&] {
          fsdp::forward(module, torch::ones({1, 3}));
        },
        {});
    EXPECT_FALSE(ForwardScope::active());
  });
}

TEST(StrictMode, GatheredParametersMayBeRead) {
  RunRanks(2, [] {
    InitRank();
    LowRank module;
    FSDPModule handle = fully_shard(module);
    handle.unshard();
    EXPECT_EQ(module->a.sum().item<double>(), 24);
    EXPECT_TRUE(
        module->forward(torch::ones({1, 4})).equal(torch::full({1, 4}, 24.0)));
    handle.reshard();
    ExpectError<c10::Error>([&] { module->a.sum(); }, {"full_tensor()"});
  });
}

}  // namespace
}  // namespace fsdp::testing
