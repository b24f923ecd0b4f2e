// SPDX-License-Identifier: Apache-2.0

#include "fsdp/module/activation_offload.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/randn.h"
#include "c10/util/Exception.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/module/activation_checkpoint.h"
#include "gtest/gtest.h"
#include "tests/fsdp/mlp.h"
#include "tests/fsdp/module_snapshot.h"
#include "tests/testing/ranks.h"
#include "torch/csrc/autograd/function.h"

namespace fsdp::testing {
namespace {

constexpr uint64_t kFloat = sizeof(float);

TEST(ActivationOffload, HoldsOnlyTensorsThatForwardSaves) {
  const at::Tensor weight = at::randn({4, 3}).requires_grad_();
  const at::Tensor x = at::randn({5, 4}).requires_grad_();
  const at::Tensor expected = x.detach().t().matmul(at::ones({5, 3}));
  at::Tensor out;
  {
    const ActivationOffload offload;
    out = x.matmul(weight).sum();
    EXPECT_EQ(offload.num_saved_bytes(), (5 * 4 + 4 * 3) * kFloat);
    {
      const ActivationOffload inner(/*pin_memory=*/false);
      x.exp();
      EXPECT_EQ(inner.num_saved_bytes(), 5 * 4 * kFloat);
    }
    // Another thread saves as usual.
    std::thread([&] { x.exp(); }).join();
    EXPECT_EQ(offload.num_saved_bytes(), (5 * 4 + 4 * 3) * kFloat);
  }
  // A new offload counts from zero.
  const uint64_t none = [&] {
    x.exp();
    const ActivationOffload offload;
    return offload.num_saved_bytes();
  }();
  EXPECT_EQ(none, 0u);
  out.backward();
  EXPECT_TRUE(weight.grad().allclose(expected));
}

TEST(ActivationOffload, SeveralMayEndInAnyOrder) {
  const at::Tensor x = at::randn({3}).requires_grad_();
  std::optional<ActivationOffload> first, second, third;
  first.emplace();
  second.emplace();
  third.emplace();
  first.reset();
  x.exp();
  EXPECT_EQ(third->num_saved_bytes(), 3 * kFloat);
  third.reset();
  x.exp();
  EXPECT_EQ(second->num_saved_bytes(), 3 * kFloat);
  second.reset();
  const ActivationOffload next;
  x.exp();
  EXPECT_EQ(next.num_saved_bytes(), 3 * kFloat);
}

TEST(ActivationOffload, DetectsChangesInPlace) {
  const at::Tensor x = at::randn({3}).requires_grad_();
  at::Tensor y;
  at::Tensor loss;
  {
    const ActivationOffload offload;
    y = x * 2;
    loss = y.square().sum();
  }
  {
    const at::NoGradGuard no_grad;
    y.add_(1);
  }
  ExpectError<c10::Error>([&] { loss.backward(); }, {"modified in place"});
}

TEST(ActivationOffload, FreesAnAbandonedGraph) {
  const at::Tensor x = at::randn({3}).requires_grad_();
  std::weak_ptr<torch::autograd::Node> exp, dot;
  {
    const ActivationOffload offload;
    const at::Tensor y = x.exp();  // saves the result
    const at::Tensor z = y.dot(y);
    exp = y.grad_fn();
    dot = z.grad_fn();
    EXPECT_EQ(offload.num_saved_bytes(), 3 * 3 * kFloat);
  }
  EXPECT_TRUE(exp.expired());
  EXPECT_TRUE(dot.expired());
}

TEST(ActivationOffload, SavesNothingWhereNothingNeedsBackward) {
  const ActivationOffload offload;
  at::randn({3}).exp();
  {
    const at::NoGradGuard no_grad;
    at::randn({3}).requires_grad_().exp();
  }
  EXPECT_EQ(offload.num_saved_bytes(), 0u);
}

// A step's losses and gradients, with and without offload.
void ExpectEqualSteps(bool reshard_after_forward, bool is_checkpointed) {
  RunRanks(2, [&] {
    init_process_group();
    const auto train = [&](bool offloads) {
      Mlp model;
      FullyShardOptions options;
      options.reshard_after_forward = reshard_after_forward;
      fully_shard(model->up, options);
      fully_shard(model, options);
      std::optional<ActivationOffload> offload;
      if (offloads) offload.emplace();
      const at::Tensor x = BatchOf(0);
      const at::Tensor out =
          is_checkpointed
              ? checkpoint(
                    [&](const at::Tensor& t) { return model->forward(t); }, x)
              : model->forward(x);
      const uint64_t saved = offloads ? offload->num_saved_bytes() : 0;
      offload.reset();
      const at::Tensor loss = out.square().mean();
      loss.backward();
      std::vector<at::Tensor> all = {loss.detach()};
      for (const at::Tensor& shard : model->parameters()) {
        all.push_back(shard.grad());
      }
      return std::pair(saved, all);
    };
    const auto [none, expected] = train(false);
    const auto [saved, all] = train(true);
    EXPECT_EQ(none, 0u);
    // x and relu's output, each with 12 rows; parameters are not included.
    EXPECT_GE(saved, 12 * 30 * kFloat);
    EXPECT_LE(saved, 12 * (30 + 2 * 67) * kFloat);
    ASSERT_EQ(all.size(), expected.size());
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_TRUE(all[i].equal(expected[i])) << i;
    }
  });
}

TEST(ActivationOffload, TrainsAsWithoutUnderFullyShard) {
  ExpectEqualSteps(/*reshard_after_forward=*/true, /*is_checkpointed=*/false);
  ExpectEqualSteps(/*reshard_after_forward=*/false, /*is_checkpointed=*/false);
}

TEST(ActivationOffload, KeepsTheInputsOfACheckpoint) {
  ExpectEqualSteps(/*reshard_after_forward=*/true, /*is_checkpointed=*/true);
}

}  // namespace
}  // namespace fsdp::testing
