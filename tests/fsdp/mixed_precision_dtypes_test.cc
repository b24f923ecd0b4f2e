// SPDX-License-Identifier: Apache-2.0
// Mixed precision: the dtype that each module sees, with and without the
// boundary of a forward, and which tensors keep theirs.

#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "fsdp/forward.h"
#include "fsdp/fully_shard.h"
#include "fsdp/module/activation_checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::kBFloat16;
using torch::kFloat;
using torch::kHalf;
using torch::Tensor;
using Dtypes = std::vector<at::ScalarType>;

Dtypes* recorder = nullptr;

// A linear layer that records the dtype of the inputs; with `casts`, it casts
// them itself.
struct NotingImpl : torch::nn::Module {
  explicit NotingImpl(bool casts_ = false)
      : casts(casts_),
        linear(register_module("linear", torch::nn::Linear(5, 5))) {}
  Tensor forward(const Tensor& x, const std::optional<Tensor>& extra = {}) {
    recorder->push_back(x.scalar_type());
    if (extra.has_value()) recorder->push_back(extra->scalar_type());
    const Tensor y = linear(casts ? x.to(linear->weight.scalar_type()) : x);
    return extra.has_value() ? y + extra->to(y.scalar_type()) : y;
  }
  bool casts;
  torch::nn::Linear linear;
};

struct TwoNotingImpl : torch::nn::Module {
  explicit TwoNotingImpl(bool casts = false)
      : first(std::make_shared<NotingImpl>(casts)),
        second(std::make_shared<NotingImpl>(casts)) {
    register_module("first", first.ptr());
    register_module("second", second.ptr());
  }
  Tensor forward(const Tensor& x) {
    recorder->push_back(x.scalar_type());
    if (extra.has_value()) return second(first(x), extra);
    if (checkpointed) {
      return checkpoint([this](const Tensor& t) { return second(t); },
                        first(x));
    }
    return second(first(x));
  }
  std::optional<Tensor> extra;
  bool checkpointed = false;
  Wrapped<NotingImpl> first, second;
};

// The dtypes that the root and the two modules saw, then that of the output; in
// backward too.
Dtypes Seen(const std::shared_ptr<TwoNotingImpl>& model) {
  Dtypes seen;
  recorder = &seen;
  const Tensor y = forward(*model, torch::ones({3, 5}));
  y.sum().backward();
  seen.push_back(y.scalar_type());
  for (const auto& p : model->parameters()) {
    EXPECT_EQ(p.grad().scalar_type(), kFloat);
  }
  return seen;
}

TEST(MixedPrecision, HalfInOneChildOnly) {
  RunRanks(2, [] {
    StartRank();
    auto model = std::make_shared<TwoNotingImpl>();
    fully_shard(model->second, {.mp_policy = {.param_dtype = kHalf}});
    fully_shard(model);
    EXPECT_THAT(Seen(model), ElementsAre(kFloat, kFloat, kHalf, kHalf));

    model = std::make_shared<TwoNotingImpl>(/*casts=*/true);
    fully_shard(model->second, {.mp_policy = {.param_dtype = kHalf,
                                              .cast_forward_inputs = false}});
    fully_shard(model);
    EXPECT_THAT(Seen(model), ElementsAre(kFloat, kFloat, kFloat, kHalf));

    model = std::make_shared<TwoNotingImpl>();
    fully_shard(model->first,
                {.mp_policy = {.param_dtype = kHalf, .output_dtype = kFloat}});
    fully_shard(model);
    EXPECT_THAT(Seen(model), ElementsAre(kFloat, kHalf, kFloat, kFloat));
  });
}

TEST(MixedPrecision, InputsFromOutside) {
  RunRanks(2, [] {
    StartRank();
    for (const bool cast : {true, false}) {
      auto model = std::make_shared<TwoNotingImpl>(/*casts=*/!cast);
      model->extra = torch::ones({3, 5});
      fully_shard(model->second, {.mp_policy = {.param_dtype = kHalf,
                                                .cast_forward_inputs = cast}});
      fully_shard(model, {.mp_policy = {.param_dtype = kHalf}});
      // Root, first, second, the input from outside, output.
      EXPECT_THAT(Seen(model), ElementsAre(kHalf, kHalf, kHalf,
                                           cast ? kHalf : kFloat, kHalf));
    }
  });
}

TEST(MixedPrecision, RecomputationCastsAgain) {
  RunRanks(2, [] {
    StartRank();
    auto model = std::make_shared<TwoNotingImpl>();
    model->checkpointed = true;
    fully_shard(model->second, {.mp_policy = {.param_dtype = kBFloat16,
                                              .output_dtype = kFloat}});
    fully_shard(model);
    // Root, first, second, second again in backward, output.
    EXPECT_THAT(Seen(model),
                ElementsAre(kFloat, kFloat, kBFloat16, kBFloat16, kFloat));
  });
}

TEST(MixedPrecision, AListCastsAtEachCallOfEachModule) {
  RunRanks(2, [] {
    StartRank();
    Wrapped<torch::nn::LinearImpl> a(4, 4);
    Wrapped<torch::nn::LinearImpl> b(4, 4);
    fully_shard({a, b}, {.mp_policy = {.param_dtype = kBFloat16,
                                       .output_dtype = torch::kDouble}});
    const Tensor h = a(torch::ones({2, 4}));
    EXPECT_EQ(h.scalar_type(), torch::kDouble);
    Tensor sum = torch::zeros({}, torch::kDouble);
    for (int call = 0; call < 2; ++call) {
      const Tensor y = b(h);
      EXPECT_EQ(y.scalar_type(), torch::kDouble);
      sum = sum + y.sum();
    }
    sum.backward();
    EXPECT_EQ(b->parameters()[0].grad().scalar_type(), kFloat);
  });
}

TEST(MixedPrecision, OutputDtypeNeedsABoundary) {
  RunRanks(2, [] {
    StartRank();
    torch::nn::Linear linear(5, 3);
    fully_shard(linear, {.mp_policy = {.param_dtype = kBFloat16,
                                       .output_dtype = kFloat}});
    const Tensor x = torch::ones({2, 5});
    EXPECT_THAT(ThrownMessage([&] { linear(x); }),
                HasSubstr("sets output_dtype, but fully_shard does not see"));
    EXPECT_EQ(forward(linear, x).scalar_type(), kFloat);
  });
}

// Without a boundary: floating activations are cast as they meet parameters.
TEST(MixedPrecision, CastsWhereActivationsMeetParameters) {
  RunRanks(2, [] {
    StartRank();
    torch::nn::Linear linear(5, 3);
    fully_shard(linear, {.mp_policy = {.param_dtype = kBFloat16}});
    const Tensor x = torch::randn({2, 5}).requires_grad_();
    const Tensor y = linear(x);
    EXPECT_EQ(y.scalar_type(), kBFloat16);
    y.sum().backward();
    EXPECT_EQ(x.grad().scalar_type(), kFloat);

    torch::nn::Linear strict(5, 3);
    fully_shard(strict, {.mp_policy = {.param_dtype = kBFloat16,
                                       .cast_forward_inputs = false}});
    EXPECT_THAT(ThrownMessage([&] { strict(x); }), HasSubstr("dtype"));
    EXPECT_EQ(strict(x.to(kBFloat16)).scalar_type(), kBFloat16);

    // Tensors in a list are cast, too.
    torch::nn::LSTM lstm(5, 3);
    fully_shard(lstm, {.mp_policy = {.param_dtype = kBFloat16}});
    const Tensor h = std::get<0>(lstm(torch::randn({4, 2, 5})));
    EXPECT_EQ(h.scalar_type(), kBFloat16);
    h.sum().backward();
    EXPECT_EQ(lstm->parameters()[0].grad().scalar_type(), kFloat);
  });
}

TEST(MixedPrecision, NormsWithTheirBuffers) {
  RunRanks(2, [] {
    StartRank();
    for (const at::ScalarType dtype : {kBFloat16, kHalf}) {
      torch::nn::Sequential model(
          torch::nn::Linear(5, 6), torch::nn::BatchNorm1d(6),
          torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})),
          torch::nn::GroupNorm(2, 6), torch::nn::Linear(6, 3));
      // The norm with buffers keeps float32.
      fully_shard(model[1], {});
      fully_shard(model, {.mp_policy = {.param_dtype = dtype}});
      const Tensor y = model->forward(torch::randn({4, 5}));
      EXPECT_EQ(y.scalar_type(), dtype);
      y.sum().backward();
      for (const auto& p : model->parameters()) {
        EXPECT_EQ(p.grad().scalar_type(), kFloat);
      }
      for (const auto& buffer : model->named_buffers()) {
        if (!buffer.value().is_floating_point()) continue;
        EXPECT_EQ(buffer.value().scalar_type(), kFloat) << buffer.key();
      }
    }
    // In one group with the Linear it meets float32 statistics, which nothing
    // casts.
    torch::nn::Sequential model(torch::nn::Linear(5, 6),
                                torch::nn::BatchNorm1d(6));
    fully_shard(model, {.mp_policy = {.param_dtype = kBFloat16}});
    EXPECT_THAT(ThrownMessage([&] {
                  model->forward(torch::randn({4, 5}));
                }),
                HasSubstr("BFloat16"));
    EXPECT_EQ(model->buffers()[0].scalar_type(), kFloat);
  });
}

}  // namespace
}  // namespace fsdp::testing
