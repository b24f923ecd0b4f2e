// SPDX-License-Identifier: Apache-2.0
// The operators that reach the lazy key without boxes (the kernels in
// fsdp/engine/lazy/lazy_kernels.cc) give the same result as in a module without
// fully_shard: on parameters that they have gathered, on parameters that
// already are, and where the kernels leave them to the fallback.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/engine/lazy_key.h"
#include "fsdp/fully_shard.h"
#include "fsdp/report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/reader_pair.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using torch::Tensor;

struct Operator {
  std::string name;
  // The operator on the members of a module of 6 x 6 and 6 elements, and on an
  // input of 3 x 6.
  std::function<Tensor(const ReaderImpl&, const Tensor&)> run;
};

const std::vector<Operator>& Operators() {
  static const auto* const all = new std::vector<Operator>{
      {"add", [](const auto& m, const Tensor& x) { return x + m.bias; }},
      {"mul", [](const auto& m, const Tensor& x) { return x * m.bias; }},
      {"t", [](const auto& m, const Tensor& x) { return x.mm(m.weight.t()); }},
      {"transpose",
       [](const auto& m, const Tensor& x) {
         return x.mm(m.weight.transpose(0, 1));
       }},
      {"mm", [](const auto& m, const Tensor& x) { return x.mm(m.weight); }},
      {"matmul",
       [](const auto& m, const Tensor& x) { return x.matmul(m.weight); }},
      {"bmm",
       [](const auto& m, const Tensor& x) {
         return x.unsqueeze(0).bmm(m.weight.unsqueeze(0));
       }},
      {"addmm",
       [](const auto& m, const Tensor& x) {
         return torch::addmm(m.bias, x, m.weight, 2, 3);
       }},
      {"linear",
       [](const auto& m, const Tensor& x) {
         return torch::linear(x, m.weight, m.bias);
       }},
      {"linear without a bias",
       [](const auto& m, const Tensor& x) {
         return torch::linear(x, m.weight);
       }},
      {"embedding",
       [](const auto& m, const Tensor& x) {
         return torch::embedding(m.weight, torch::arange(3)) * x;
       }},
      {"layer_norm",
       [](const auto& m, const Tensor& x) {
         return torch::layer_norm(x, {6}, m.bias, m.bias);
       }},
      {"rms_norm",
       [](const auto& m, const Tensor& x) {
         return torch::rms_norm(x, {6}, m.bias);
       }},
      {"group_norm",
       [](const auto& m, const Tensor& x) {
         return torch::group_norm(x, 2, m.bias, m.bias);
       }},
      {"conv1d",
       [](const auto& m, const Tensor& x) {
         return torch::conv1d(x.view({3, 6, 1}), m.weight.unsqueeze(2), m.bias);
       }},
      {"conv2d",
       [](const auto& m, const Tensor& x) {
         return torch::conv2d(x.view({3, 6, 1, 1}), m.weight.view({6, 6, 1, 1}),
                              m.bias);
       }},
      {"conv3d",
       [](const auto& m, const Tensor& x) {
         return torch::conv3d(x.view({3, 6, 1, 1, 1}),
                              m.weight.view({6, 6, 1, 1, 1}), m.bias);
       }},
  };
  return *all;
}

TEST(LazyKernels, GiveWhatAPlainModuleGives) {
  RunRanks(2, [] {
    StartRankInDouble();
    for (const bool reshard : {true, false}) {
      for (const auto& [name, run] : Operators()) {
        SCOPED_TRACE(name);
        const Both both = MakeBoth({.reshard_after_forward = reshard});
        for (int step = 0; step < 2; ++step) {
          // The first use gathers, and the second finds the parameters.
          const auto twice = [&](const PairImpl& m) {
            return run(*m.a, run(*m.a, Input()).view({3, 6}) + Input());
          };
          const Tensor got = twice(*both.model);
          const Tensor want = twice(*both.reference);
          ASSERT_TRUE(Close(got.detach(), want.detach()));
          got.square().sum().backward();
          want.square().sum().backward();
          ExpectSameGradients(*both.model, *both.reference);
        }
        EXPECT_EQ(step_report(*both.model).unsharded_bytes, 0U);
      }
    }
  });
}

TEST(LazyKernels, SeeAShardThatWasWrittenBetweenTwoUses) {
  RunRanks(2, [] {
    StartRankInDouble();
    const torch::NoGradGuard no_grad;
    for (const auto& [name, run] : Operators()) {
      SCOPED_TRACE(name);
      const Both both = MakeBoth({.reshard_after_forward = false});
      for (int step = 0; step < 3; ++step) {
        EXPECT_TRUE(Close(run(*both.model->a, Input()),
                          run(*both.reference->a, Input())));
        for (const Tensor& shard : both.model->parameters()) shard.mul_(2);
        for (const Tensor& whole : both.reference->parameters()) whole.mul_(2);
      }
    }
  });
}

TEST(LazyKernels, CastActivationsOfEveryUse) {
  RunRanks(2, [] {
    StartRank();
    const Both both = MakeBoth(
        {.reshard_after_forward = false,
         .mp_policy = MixedPrecisionPolicy{.param_dtype = torch::kBFloat16}});
    for (int use = 0; use < 2; ++use) {
      EXPECT_EQ(
          torch::linear(Input(), both.model->a->weight, both.model->a->bias)
              .scalar_type(),
          torch::kBFloat16);
    }
  });
}

TEST(LazyKernels, RefuseAModuleThatIsGone) {
  RunRanks(1, [] {
    StartRankInDouble();
    Tensor weight;
    {
      const Both both = MakeBoth();
      weight = both.model->a->weight;
    }
    EXPECT_THAT(ThrownMessage([&] { Input().mm(weight); }),
                ::testing::HasSubstr("after its module was destroyed"));
  });
}

TEST(LazyKernels, MakeNothingReadOnTheMetaDevice) {
  const MetaDeviceGuard on_meta;
  const Tensor weight = torch::ones({6, 6});
  const Tensor product = torch::ones({3, 6}).mm(weight.t());
  EXPECT_TRUE(product.is_meta());
  EXPECT_EQ(product.sizes(), (std::vector<int64_t>{3, 6}));
}

}  // namespace
}  // namespace fsdp::testing
