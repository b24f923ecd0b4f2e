// SPDX-License-Identifier: Apache-2.0

#include "fsdp/optim/fused_adamw.h"

#include <memory>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/empty_strided.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/ones_like.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/zeros.h"
#include "c10/util/Exception.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/optim/adam.h"
#include "torch/optim/adamw.h"
#include "torch/serialize.h"
#include "torch/utils.h"

namespace fsdp {
namespace {

using torch::optim::OptimizerParamGroup;

struct Setting {
  double weight_decay;
  bool amsgrad;
  at::ScalarType dtype;
};

std::vector<at::Tensor> MakeParams(at::ScalarType dtype) {
  torch::manual_seed(1);
  std::vector<at::Tensor> params;
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{5, 3}, std::vector<int64_t>{0, 7},
        std::vector<int64_t>{}, std::vector<int64_t>{129}}) {
    params.push_back(at::randn(shape).to(dtype).requires_grad_());
  }
  return params;
}

void SetGrads(const std::vector<at::Tensor>& params, int64_t seed) {
  torch::manual_seed(static_cast<uint64_t>(seed));
  for (const at::Tensor& p : params) {
    p.mutable_grad() = at::randn(p.sizes()).to(p.scalar_type());
  }
}

void ExpectClose(const std::vector<at::Tensor>& a,
                 const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(a[i].allclose(b[i], 1e-5, 1e-6)) << i << a[i] << b[i];
  }
}

class FusedAdamWTest : public ::testing::TestWithParam<Setting> {};

TEST_P(FusedAdamWTest, StepsAsAdamWDoes) {
  const Setting& setting = GetParam();
  const std::vector<at::Tensor> ours = MakeParams(setting.dtype);
  const std::vector<at::Tensor> theirs = MakeParams(setting.dtype);
  FusedAdamW fused(ours, FusedAdamWOptions(0.1)
                             .weight_decay(setting.weight_decay)
                             .amsgrad(setting.amsgrad)
                             .betas({0.8, 0.95}));
  torch::optim::AdamW reference(theirs, torch::optim::AdamWOptions(0.1)
                                            .weight_decay(setting.weight_decay)
                                            .amsgrad(setting.amsgrad)
                                            .betas({0.8, 0.95}));
  for (int64_t step = 0; step < 8; ++step) {
    SetGrads(ours, step);
    SetGrads(theirs, step);
    fused.step();
    reference.step();
    ExpectClose(ours, theirs);
  }
}

TEST_P(FusedAdamWTest, StepsAsAdamDoesWithoutDecoupling) {
  const Setting& setting = GetParam();
  const std::vector<at::Tensor> ours = MakeParams(setting.dtype);
  const std::vector<at::Tensor> theirs = MakeParams(setting.dtype);
  FusedAdamW fused(ours, FusedAdamWOptions(0.1)
                             .weight_decay(setting.weight_decay)
                             .amsgrad(setting.amsgrad)
                             .decoupled_weight_decay(false));
  torch::optim::Adam reference(theirs, torch::optim::AdamOptions(0.1)
                                           .weight_decay(setting.weight_decay)
                                           .amsgrad(setting.amsgrad));
  for (int64_t step = 0; step < 8; ++step) {
    SetGrads(ours, step);
    SetGrads(theirs, step);
    fused.step();
    reference.step();
    ExpectClose(ours, theirs);
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, FusedAdamWTest,
                         ::testing::Values(Setting{0, false, at::kFloat},
                                           Setting{0.1, false, at::kFloat},
                                           Setting{0.1, true, at::kFloat},
                                           Setting{0.1, false, at::kDouble}));

TEST(FusedAdamW, MaximizeMirrorsTheGradient) {
  const std::vector<at::Tensor> up = MakeParams(at::kFloat);
  const std::vector<at::Tensor> down = MakeParams(at::kFloat);
  FusedAdamW maximizing(up, FusedAdamWOptions(0.1).maximize(true));
  FusedAdamW minimizing(down, FusedAdamWOptions(0.1));
  SetGrads(up, 3);
  SetGrads(down, 3);
  for (const at::Tensor& p : down) p.mutable_grad().neg_();
  maximizing.step();
  minimizing.step();
  ExpectClose(up, down);
}

TEST(FusedAdamW, GroupsHaveTheirOwnOptions) {
  const std::vector<at::Tensor> params = MakeParams(at::kFloat);
  const at::Tensor before = params[3].detach().clone();
  FusedAdamW optimizer(
      {OptimizerParamGroup({params[0]}),
       OptimizerParamGroup({params[3]}, std::make_unique<FusedAdamWOptions>(
                                            FusedAdamWOptions(0)))},
      FusedAdamWOptions(0.5));
  SetGrads(params, 1);
  const at::Tensor other = params[0].detach().clone();
  optimizer.step();
  EXPECT_TRUE(params[3].equal(before));
  EXPECT_FALSE(params[0].equal(other));
  // A learning-rate scheduler does this.
  optimizer.param_groups()[1].options().set_lr(0.5);
  optimizer.step();
  EXPECT_FALSE(params[3].equal(before));
}

TEST(FusedAdamW, MixesDtypesInAGroup) {
  std::vector<at::Tensor> params = {
      at::ones({4}).requires_grad_(),
      at::ones({4}, at::kDouble).requires_grad_(),
      at::ones({4}, at::kBFloat16).requires_grad_()};
  FusedAdamW optimizer(params, FusedAdamWOptions(0.5).weight_decay(0));
  for (const at::Tensor& p : params) p.mutable_grad() = at::ones_like(p);
  optimizer.step();
  for (const at::Tensor& p : params) {
    EXPECT_NEAR(p[0].item<double>(), 0.5, 1e-2);
  }
}

TEST(FusedAdamW, LeavesParametersWithoutGradientAlone) {
  const std::vector<at::Tensor> params = MakeParams(at::kFloat);
  FusedAdamW optimizer(params);
  SetGrads(params, 1);
  params[0].mutable_grad() = at::Tensor();
  const at::Tensor before = params[0].detach().clone();
  optimizer.step();
  EXPECT_TRUE(params[0].equal(before));
  EXPECT_EQ(optimizer.state().count(params[0].unsafeGetTensorImpl()), 0);
  const auto& state = static_cast<const FusedAdamWParamState&>(
      *optimizer.state().at(params[3].unsafeGetTensorImpl()));
  EXPECT_EQ(state.step().scalar_type(), at::kFloat);
  EXPECT_EQ(state.step().dim(), 0);
  EXPECT_EQ(state.step().item<float>(), 1);
  EXPECT_FALSE(state.max_exp_avg_sq().defined());
}

// The kernel itself reads both in memory order.
TEST(FusedAdamW, FollowsStridesOfTheGradient) {
  const at::Tensor ours = at::zeros({2, 3}).requires_grad_();
  const at::Tensor theirs = at::zeros({2, 3}).requires_grad_();
  const at::Tensor values = at::arange(6, at::kFloat).view({2, 3}) - 2;
  ours.mutable_grad() = values.t().contiguous().t();
  theirs.mutable_grad() = values.clone();
  FusedAdamW fused({ours}, FusedAdamWOptions(0.1).eps(1));
  torch::optim::AdamW reference(std::vector<at::Tensor>{theirs},
                                torch::optim::AdamWOptions(0.1).eps(1));
  fused.step();
  reference.step();
  ExpectClose({ours}, {theirs});
}

TEST(FusedAdamW, ContinuesFromASavedState) {
  const std::vector<at::Tensor> first = MakeParams(at::kFloat);
  FusedAdamW original(first, FusedAdamWOptions(0.3).amsgrad(true));
  for (int64_t step = 0; step < 3; ++step) {
    SetGrads(first, step);
    original.step();
  }
  std::stringstream stream;
  torch::save(original, stream);
  std::vector<at::Tensor> second;
  for (const at::Tensor& p : first) {
    second.push_back(p.detach().clone().requires_grad_());
  }
  FusedAdamW restored(second);
  torch::load(restored, stream);
  const auto& options = static_cast<const FusedAdamWOptions&>(
      restored.param_groups()[0].options());
  EXPECT_EQ(options.lr(), 0.3);
  EXPECT_TRUE(options.amsgrad());
  SetGrads(first, 9);
  SetGrads(second, 9);
  original.step();
  restored.step();
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(first[i].equal(second[i])) << i;
  }
}

TEST(FusedAdamW, RunsTheClosureWithGrad) {
  const at::Tensor p = at::ones({2}).requires_grad_();
  FusedAdamW optimizer({p}, FusedAdamWOptions(0.5));
  const at::Tensor loss = optimizer.step([&] {
    at::Tensor sum = (p * p).sum();
    sum.backward();
    return sum;
  });
  EXPECT_EQ(loss.item<float>(), 2);
  EXPECT_LT(p[0].item<float>(), 1);
}

TEST(FusedAdamW, RefusesUnsupportedParameters) {
  const at::Tensor p = at::ones({4, 4}).requires_grad_();
  EXPECT_THROW(FusedAdamW({p}, FusedAdamWOptions(-1)), c10::ValueError);
  EXPECT_THROW(FusedAdamW({p}, FusedAdamWOptions(1).eps(-1)), c10::ValueError);
  EXPECT_THROW(FusedAdamW({p}, FusedAdamWOptions(1).betas({0.9, 1.0})),
               c10::ValueError);
  EXPECT_THROW(FusedAdamW({p}, FusedAdamWOptions(1).betas({-0.1, 0.9})),
               c10::ValueError);
  EXPECT_THROW(FusedAdamW({p}, FusedAdamWOptions(1).weight_decay(-1)),
               c10::ValueError);
  EXPECT_THROW(FusedAdamW({at::ones({2}, at::kComplexFloat).requires_grad_()}),
               c10::ValueError);
  EXPECT_THROW(FusedAdamW({at::empty_strided({2, 2}, {4, 1}).requires_grad_()}),
               c10::ValueError);
  const at::Tensor q = at::ones({3}).requires_grad_();
  FusedAdamW optimizer({q, p});
  q.mutable_grad() = at::ones({3});
  p.mutable_grad() = at::ones({4, 4}).to_sparse();
  EXPECT_THROW(optimizer.step(), c10::NotImplementedError);
  EXPECT_TRUE(q.equal(at::ones({3})));  // nothing moved
}

}  // namespace
}  // namespace fsdp
