// SPDX-License-Identifier: Apache-2.0
// Pair: a module with two that hold their parameters as members, the same
// module sharded, and checks that both are equal. For tests that reach and
// change parameters; in float64.
#ifndef TESTS_FSDP_READER_PAIR_H_
#define TESTS_FSDP_READER_PAIR_H_

#include <cstdint>
#include <optional>

#include "fsdp/fully_shard.h"
#include "gtest/gtest.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::testing {

inline bool Close(const torch::Tensor& got, const torch::Tensor& want) {
  return got.sizes() == want.sizes() &&
         torch::allclose(got, want, /*rtol=*/1e-9, /*atol=*/1e-11);
}

struct ReaderImpl : torch::nn::Module {
  explicit ReaderImpl(int64_t size = 6)
      : weight(register_parameter("weight", torch::randn({size, size}))),
        bias(register_parameter("bias", torch::randn({size}))) {}
  torch::Tensor weight, bias;
};
TORCH_MODULE(Reader);

struct PairImpl : torch::nn::Module {
  PairImpl()
      : a(register_module("a", Reader())), b(register_module("b", Reader())) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::addmm(b->bias, torch::addmm(a->bias, x, a->weight).tanh(),
                        b->weight);
  }
  Reader a, b;
};
TORCH_MODULE(Pair);

// A sharded model, and the same without fully_shard.
struct Both {
  Pair model, reference;
};

inline Both MakeBoth(const FullyShardOptions& options = {}) {
  torch::manual_seed(7);
  Pair reference;
  torch::manual_seed(7);
  Pair model;
  fully_shard(model->a, options);
  fully_shard(model->b, options);
  fully_shard(model, options);
  return {model, reference};
}

// Equal on every rank, so that averages equal one rank's result.
inline torch::Tensor Input() { return torch::linspace(-1, 1, 18).view({3, 6}); }

inline void ExpectSameGradients(const torch::nn::Module& model,
                                const torch::nn::Module& reference) {
  const auto want = reference.named_parameters();
  for (const auto& [name, parameter] : fsdp::named_parameters(model)) {
    const std::optional<DTensor> grad = parameter.grad();
    ASSERT_EQ(grad.has_value(), want[name].grad().defined()) << name;
    if (!grad.has_value()) continue;
    EXPECT_TRUE(Close(grad->full_tensor(), want[name].grad())) << name;
  }
}

inline void ExpectSameParameters(const torch::nn::Module& model,
                                 const torch::nn::Module& reference) {
  const auto want = reference.named_parameters();
  for (const auto& [name, parameter] : fsdp::named_parameters(model)) {
    EXPECT_TRUE(Close(parameter.full_tensor(), want[name])) << name;
  }
}

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_READER_PAIR_H_
