// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/activation.h"

#include <vector>

#include "fsdp/mesh/device_mesh.h"
#include "fsdp/module/activation_checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "torch/csrc/autograd/custom_function.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::HasSubstr;

torch::Tensor Numbers() { return torch::arange(12.0).view({4, 3}); }

TEST(Activation, IsCutIntoPartsAndGathered) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const torch::Tensor whole = Numbers().set_requires_grad(true);
    const torch::Tensor parts = shard(whole, tp, 0);
    EXPECT_EQ(parts.sizes(), whole.sizes());
    EXPECT_TRUE(parts.requires_grad());
    ASSERT_EQ(layout_of(parts).size(), 1u);
    EXPECT_EQ(layout_of(parts)[0].placement, Shard(0));
    EXPECT_TRUE(
        torch::equal(to_local(parts), whole.narrow(0, 2 * get_rank(), 2)));
    const torch::Tensor columns = redistribute(parts, tp, Shard(-1));
    EXPECT_EQ(to_local(columns).size(1), get_rank() == 0 ? 2 : 1);
    EXPECT_TRUE(torch::equal(full_tensor(columns), whole));
    (full_tensor(columns) * Numbers()).sum().backward();
    EXPECT_TRUE(torch::equal(whole.grad(), Numbers()));
    EXPECT_TRUE(layout_of(whole).empty());
    EXPECT_TRUE(to_local(whole).is_same(whole));
  });
}

TEST(Activation, IsMadeFromParts) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"cp", "tp"});
    const torch::Tensor whole = Numbers();
    const torch::Tensor part =
        whole.narrow(0, 2 * mesh.get_local_rank("cp"), 2).clone();
    const torch::Tensor shares = part / 2;
    const torch::Tensor activation =
        from_local(shares, mesh, {Shard(0), Partial()});
    EXPECT_EQ(activation.sizes(), whole.sizes());
    ASSERT_EQ(layout_of(activation).size(), 2u);
    EXPECT_EQ(layout_of(activation)[1].mesh, mesh["tp"]);
    EXPECT_TRUE(torch::equal(full_tensor(activation), whole));
    const torch::Tensor twice = full_tensor(activation + activation);
    EXPECT_TRUE(torch::equal(twice, 2 * whole));
    const torch::Tensor columns =
        redistribute(activation, mesh["tp"], Shard(1));
    EXPECT_TRUE(torch::equal(full_tensor(columns), whole));
    EXPECT_EQ(to_local(columns).size(0), 2);
    EXPECT_THAT(ThrownMessage([&] { from_local(part, mesh, {Shard(0)}); }),
                HasSubstr("1"));
  });
}

TEST(Activation, CrossesACheckpointInParts) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const auto square = [](const torch::Tensor& x) { return x * x; };
    const torch::Tensor whole = Numbers().set_requires_grad(true);
    const torch::Tensor result = checkpoint(square, shard(whole, tp, 0));
    EXPECT_EQ(layout_of(result).size(), 1u);
    full_tensor(result).sum().backward();
    EXPECT_TRUE(torch::equal(whole.grad(), 2 * Numbers()));
  });
}

struct Identity : torch::autograd::Function<Identity> {
  static torch::Tensor forward(torch::autograd::AutogradContext* /*ctx*/,
                               const torch::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* /*ctx*/,
      torch::autograd::variable_list grads) {
    return grads;
  }
};

TEST(Activation, ThrowsWhereAFunctionWouldLoseTheGradient) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const torch::Tensor whole = Numbers().set_requires_grad(true);
    const torch::Tensor parts = shard(whole, tp, 0);
    EXPECT_THAT(ThrownMessage([&] {
                  const torch::Tensor result = Identity::apply(parts);
                  full_tensor(result + 1).sum().backward();
                }),
                HasSubstr("its gradient would be lost"));
    const torch::Tensor local = Identity::apply(to_local(parts));
    full_tensor(from_local(local, tp, {Shard(0)})).sum().backward();
    EXPECT_TRUE(torch::equal(whole.grad(), torch::ones_like(whole)));
    EXPECT_THAT(ThrownMessage([&] { parts.data_ptr(); }), HasSubstr("storage"));
  });
}

TEST(Activation, IsGatheredWithoutARule) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const torch::Tensor parts = shard(Numbers(), tp, 0);
    gathered_operators(/*reset=*/true);
    EXPECT_TRUE(torch::equal(parts.cumsum(0), Numbers().cumsum(0)));
    EXPECT_EQ(gathered_operators()["aten::cumsum"], 1);
    const StrictLayouts strict;
    EXPECT_THAT(ThrownMessage([&] { parts.cumsum(0); }),
                HasSubstr("aten::cumsum has no rule for activations that lie "
                          "in parts as [4, 3] shard(0)"));
  });
}

}  // namespace
}  // namespace fsdp::testing
