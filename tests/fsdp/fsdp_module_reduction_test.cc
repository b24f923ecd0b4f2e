// SPDX-License-Identifier: Apache-2.0
// Tests FSDPModule: when gradients are reduced, how they are divided, and the
// hooks that replace the collectives and their memory.

#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/engine/fsdp_state.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/module_snapshot.h"
#include "tests/fsdp/sharded_tower.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::ElementsAre;

TEST(SetRequiresGradientSync, KeepsGradientsUnreduced) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    s.root.set_requires_gradient_sync(false);
    s.Forward();
    s.Backward();
    EXPECT_EQ(s.counts->calls("reduce_scatter"), 0);
    ExpectNoGradients(*s.tower);
    s.root.set_requires_gradient_sync(true);
    s.Forward();
    s.Backward();
    EXPECT_EQ(s.counts->calls("reduce_scatter"), 4);
    ExpectGradients(s.tower, 1, {0, 1});
  });
}

TEST(SetRequiresGradientSync, NotRecursiveIsOwnGroupAlone) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    s.root.set_requires_gradient_sync(false, /*recurse=*/false);
    s.Forward();
    s.Backward();
    EXPECT_EQ(s.counts->calls("reduce_scatter"), 3);
    ExpectNoGradients(*s.tower->stem);
    EXPECT_TRUE(parameters(*s.tower->layers[0])[0].grad().has_value());
    ClearGradients(*s.tower);
    s.root.set_requires_gradient_sync(true, /*recurse=*/false);
    s.Forward();
    s.Backward();
    // The root's gradients have both steps, the layers' only one.
    const auto want = SummedGradients({0, 1});
    for (const auto& [name, parameter] : fsdp::named_parameters(*s.tower)) {
      const double scale = name[0] == 's' || name[0] == 't' ? 1 : 0.5;
      EXPECT_TRUE(torch::allclose(parameter.grad()->full_tensor(),
                                  want.at(name) * scale, 1e-4, 1e-6))
          << name;
    }
  });
}

TEST(NoSync, IsAScopeWithoutReduction) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    {
      const NoSync scope(s.root);
      s.Forward();
      s.Backward();
    }
    EXPECT_EQ(s.counts->calls("reduce_scatter"), 0);
    ExpectNoGradients(*s.tower);
    s.Forward();
    s.Backward();
    EXPECT_EQ(s.counts->calls("reduce_scatter"), 4);
    ExpectGradients(s.tower, 1, {0, 1});
  });
}

TEST(SetRequiresAllReduce, PostponesTheSecondHalf) {
  RunRanks(4, [] {
    InitRank();
    Sharded s = ShardTower({.mesh = HybridMesh()});
    CountingBackend& replicas =
        Count(s.root.state()->group()->config().replicate_group);
    s.root.set_requires_all_reduce(false);
    s.Forward();
    s.Backward();
    EXPECT_EQ(s.counts->calls("reduce_scatter"), 4);
    EXPECT_EQ(replicas.ToString(), "");
    ExpectNoGradients(*s.tower);
    s.root.set_requires_all_reduce(true, /*recurse=*/false);
    s.Forward();
    s.Backward();
    EXPECT_EQ(s.counts->calls("reduce_scatter"), 8);
    EXPECT_EQ(replicas.ToString(), "all_reduce 1");
    EXPECT_TRUE(parameters(*s.tower->stem)[0].grad().has_value());
    ExpectNoGradients(*s.tower->layers[0]);
    s.root.set_requires_all_reduce(true);
    ClearGradients(*s.tower);
    s.Forward();
    s.Backward();
    EXPECT_EQ(replicas.ToString(), "all_reduce 5");
    // The layers' gradients have three steps, the root's only the one after it
    // was cleared.
    const auto want = SummedGradients({0, 1, 2, 3});
    for (const auto& [name, parameter] : fsdp::named_parameters(*s.tower)) {
      const double scale = name[0] == 's' || name[0] == 't' ? 0.25 : 0.75;
      EXPECT_TRUE(torch::allclose(parameter.grad()->full_tensor(),
                                  want.at(name) * scale, 1e-4, 1e-6))
          << name;
    }
  });
}

TEST(CustomCollectives, ReplaceTheBackends) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    std::vector<int64_t> numels;
    // This needs no backend, because both ranks have the same weights.
    s.layers[1].set_custom_all_gather(
        [&](at::Tensor output, at::Tensor input, c10d::ProcessGroup& group) {
          numels = {output.numel(), input.numel(), group.getSize()};
          std::vector<at::Tensor> parts{at::zeros_like(input),
                                        at::zeros_like(input)};
          std::vector<std::vector<at::Tensor>> outputs{parts};
          std::vector<at::Tensor> inputs{input};
          group.getBackend(c10::kCPU)->allgather(outputs, inputs)->wait();
          output.copy_(at::cat(parts));
        });
    s.layers[1].set_custom_reduce_scatter(
        [&](at::Tensor output, at::Tensor, c10d::ProcessGroup&) {
          output.fill_(7);
        });
    s.Forward();
    s.Backward();
    ASSERT_EQ(numels.size(), 3U);
    EXPECT_EQ(numels[0], 2 * numels[1]);
    EXPECT_EQ(numels[2], 2);
    EXPECT_EQ(s.counts->calls("reduce_scatter"), 3);
    const DTensor weight = parameters(*s.tower->layers[1])[0];
    EXPECT_TRUE(weight.grad()->to_local().equal(
        torch::full_like(weight.to_local(), 7)));
    // Unset again.
    s.layers[1].set_custom_all_gather({});
    s.layers[1].set_custom_reduce_scatter({});
    ClearGradients(*s.tower);
    s.Forward();
    s.Backward();
    ExpectGradients(s.tower, 0.5, {0, 1});
  });
}

// So that one rank can try the way of several.
TEST(CustomCollectives, AreCalledOnOneRank) {
  RunRanks(1, [] {
    InitRank();
    Sharded s = ShardTower();
    int num_gathers = 0;
    int num_reductions = 0;
    s.layers[1].set_custom_all_gather(
        [&](at::Tensor output, at::Tensor input, c10d::ProcessGroup&) {
          output.copy_(input);
          ++num_gathers;
        });
    s.layers[1].set_custom_reduce_scatter(
        [&](at::Tensor output, at::Tensor input, c10d::ProcessGroup&) {
          output.copy_(input.view_as(output));
          ++num_reductions;
        });
    s.Forward();
    s.Backward();
    EXPECT_EQ(num_gathers, 2);  // for forward and for backward
    EXPECT_EQ(num_reductions, 1);
    ExpectGradients(s.tower, 1, {0});
  });
}

// Does Gloo's work, but allocates memory itself and records the operators.
class AllocatingBackend : public CountingBackend {
 public:
  using CountingBackend::CountingBackend;
  at::Tensor allocateTensor(
      long size,  // NOLINT(google-runtime-int): the signature of c10d
      at::TensorOptions options) override {
    ++num_allocations;
    return at::empty({size}, options);
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input,
      const c10d::ReduceScatterOptions& opts) override {
    ops.push_back(opts.reduceOp);
    return CountingBackend::_reduce_scatter_base(output, input, opts);
  }
  c10::intrusive_ptr<c10d::Work> allreduce(
      std::vector<at::Tensor>& tensors,
      const c10d::AllreduceOptions& opts) override {
    ops.push_back(opts.reduceOp);
    return CountingBackend::allreduce(tensors, opts);
  }

  int num_allocations = 0;
  std::vector<c10d::ReduceOp::RedOpType> ops;
};

AllocatingBackend& Allocate(const ProcessGroup& group) {
  const auto backend =
      c10::make_intrusive<AllocatingBackend>(group->getBackend(c10::kCPU));
  group->setBackend(c10::kCPU, c10d::ProcessGroup::BackendType::CUSTOM,
                    c10::intrusive_ptr<c10d::Backend>(backend));
  return *backend;
}

TEST(AllocateFromProcessGroup, IsForTheBackendsOwnCollectives) {
  RunRanks(2, [] {
    InitRank();
    Tower tower = MakeTower();
    FSDPModule root = fully_shard(tower);
    const CustomAllGather gather = [](at::Tensor, at::Tensor,
                                      c10d::ProcessGroup&) {};
    root.set_custom_all_gather(gather);
    const std::vector<std::string> says = {"process group", "custom",
                                           "exclude one another"};
    ExpectError<c10::Error>(
        [&] { root.set_allocate_memory_from_process_group_for_comm(true); },
        says);
    root.set_custom_all_gather({});
    root.set_custom_reduce_scatter(gather);
    ExpectError<c10::Error>(
        [&] { root.set_allocate_memory_from_process_group_for_comm(true); },
        says);
    root.set_custom_reduce_scatter({});
    root.set_allocate_memory_from_process_group_for_comm(true);
    // Gloo does not allocate memory.
    ExpectError<c10::Error>([&] { LossOf(tower, InputOf(0)); },
                            {"gloo does not support allocateTensor"});
    AllocatingBackend& backend =
        Allocate(root.state()->group()->config().shard_group);
    LossOf(tower, InputOf(get_rank())).backward();
    EXPECT_EQ(backend.num_allocations, 3);  // gathered; gradients; their sum
    ExpectGradients(tower, 0.5, {0, 1});
    // As in PyTorch, a custom collective may be set afterwards and replaces one
    // half.
    root.set_custom_all_gather(
        [](at::Tensor output, at::Tensor input, c10d::ProcessGroup& group) {
          AllGatherInto(output, input, group)->wait();
        });
    LossOf(tower, InputOf(get_rank())).backward();
    EXPECT_EQ(backend.num_allocations, 5);
    ExpectGradients(tower, 1, {0, 1});
    root.set_custom_all_gather({});
    root.set_allocate_memory_from_process_group_for_comm(false);
    LossOf(tower, InputOf(get_rank())).backward();
    EXPECT_EQ(backend.num_allocations, 5);
    ExpectGradients(tower, 1.5, {0, 1});
  });
}

TEST(ForceSum, IsTheOnlyOperatorOnTheWire) {
  RunRanks(4, [] {
    InitRank();
    Sharded s = ShardTower({.mesh = HybridMesh()});
    const GroupConfig& config = s.root.state()->group()->config();
    AllocatingBackend& shards = Allocate(config.shard_group);
    AllocatingBackend& replicas = Allocate(config.replicate_group);
    using Op = c10d::ReduceOp;
    s.Forward();
    s.Backward();
    EXPECT_THAT(shards.ops, ElementsAre(Op::AVG, Op::AVG, Op::AVG, Op::AVG));
    EXPECT_THAT(replicas.ops, ElementsAre(Op::AVG, Op::AVG, Op::AVG, Op::AVG));
    ExpectGradients(s.tower, 0.25, {0, 1, 2, 3});
    ClearGradients(*s.tower);
    shards.ops.clear();
    replicas.ops.clear();
    for (FSDPModule& layer : s.layers) {
      layer.set_force_sum_reduction_for_comms(true);
    }
    s.Forward();
    s.Backward();
    // The root reduces last and was not told to sum.
    EXPECT_THAT(shards.ops, ElementsAre(Op::SUM, Op::SUM, Op::SUM, Op::AVG));
    EXPECT_THAT(replicas.ops, ElementsAre(Op::SUM, Op::SUM, Op::SUM, Op::AVG));
    ExpectGradients(s.tower, 0.25, {0, 1, 2, 3});
  });
}

TEST(AllReduceHook, SeesReducedGradientsOfTheGroup) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    std::vector<torch::Tensor> seen;
    s.layers[0].set_all_reduce_hook([&](at::Tensor flat) {
      seen.push_back(flat.clone());
      flat.mul_(3);
    });
    s.Forward();
    s.Backward();
    ASSERT_EQ(seen.size(), 1U);
    // Three weight rows and three biases on this rank.
    EXPECT_EQ(seen[0].sizes(), (std::vector<int64_t>{21}));
    const auto want = SummedGradients({0, 1});
    const int64_t begin = 3 * get_rank();
    EXPECT_TRUE(torch::allclose(seen[0].narrow(0, 0, 18).view({3, 6}),
                                want.at("0.weight").narrow(0, begin, 3) / 2,
                                1e-4, 1e-6));
    EXPECT_TRUE(torch::allclose(
        parameters(*s.tower->layers[0])[1].grad()->full_tensor(),
        want.at("0.bias") * 1.5, 1e-4, 1e-6));
    // One axis may say in which stream.
    const c10::Stream stream(c10::Stream::DEFAULT, c10::Device(c10::kCPU));
    s.layers[0].set_all_reduce_hook([&](at::Tensor flat) { flat.mul_(5); },
                                    stream);
    ClearGradients(*s.tower);
    s.Forward();
    s.Backward();
    EXPECT_EQ(seen.size(), 1U);
    EXPECT_TRUE(torch::allclose(
        parameters(*s.tower->layers[0])[1].grad()->full_tensor(),
        want.at("0.bias") * 2.5, 1e-4, 1e-6));
  });
}

TEST(AllReduceHook, OfHybridRunsAfterTheAllReduce) {
  RunRanks(4, [] {
    InitRank();
    Sharded s = ShardTower({.mesh = HybridMesh()});
    const c10::Stream stream(c10::Stream::DEFAULT, c10::Device(c10::kCPU));
    ExpectError<c10::ValueError>(
        [&] { s.layers[0].set_all_reduce_hook([](at::Tensor) {}, stream); },
        {"stream cannot be set when using native HSDP"});
    torch::Tensor seen;
    s.layers[0].set_all_reduce_hook(
        [&](at::Tensor flat) { seen = flat.clone(); });
    s.Forward();
    s.Backward();
    const auto want = SummedGradients({0, 1, 2, 3});
    const int64_t begin = 3 * (get_rank() % 2);
    EXPECT_TRUE(torch::allclose(seen.narrow(0, 18, 3),
                                want.at("0.bias").narrow(0, begin, 3) / 4, 1e-4,
                                1e-6));
  });
}

// As in PyTorch, a division after the reduction is also after the hook.
TEST(AllReduceHook, RunsBeforeTheDivision) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    s.layers[0].set_force_sum_reduction_for_comms(true);
    torch::Tensor seen;
    s.layers[0].set_all_reduce_hook(
        [&](at::Tensor flat) { seen = flat.clone(); });
    s.Forward();
    s.Backward();
    const auto want = SummedGradients({0, 1});
    const int64_t begin = 3 * get_rank();
    EXPECT_TRUE(torch::allclose(seen.narrow(0, 18, 3),
                                want.at("0.bias").narrow(0, begin, 3), 1e-4,
                                1e-6));
    EXPECT_TRUE(torch::allclose(
        parameters(*s.tower->layers[0])[1].grad()->full_tensor(),
        want.at("0.bias") / 2, 1e-4, 1e-6));
  });
}

TEST(AllReduceHook, RunsForOneRank) {
  if (!is_initialized()) init_process_group();
  Tower tower = MakeTower();
  FSDPModule root = fully_shard(tower);
  root.set_all_reduce_hook([](at::Tensor flat) { flat.neg_(); });
  LossOf(tower, InputOf(0)).backward();
  ExpectGradients(tower, -1, {0});
}

TEST(DivideFactor, ReplacesTheNumberOfRanks) {
  RunRanks(2, [] {
    InitRank();
    for (const double factor : {1.0, 2.0, 5.0}) {
      Sharded s = ShardTower();
      for (FSDPModule& module : fsdp_modules(*s.tower)) {
        if (factor == 5) {
          module.set_reduce_scatter_divide_factor(factor);
        } else {
          module.set_gradient_divide_factor(factor);
        }
      }
      s.Forward();
      s.Backward();
      ExpectGradients(s.tower, 1 / factor, {0, 1});
    }
    // Set for only one group, with sums on the wire.
    Sharded s = ShardTower();
    s.layers[1].set_gradient_divide_factor(8);
    s.layers[1].set_force_sum_reduction_for_comms(true);
    s.Forward();
    s.Backward();
    const auto want = SummedGradients({0, 1});
    EXPECT_TRUE(torch::allclose(
        parameters(*s.tower->layers[1])[0].grad()->full_tensor(),
        want.at("1.weight") / 8, 1e-4, 1e-6));
    EXPECT_TRUE(torch::allclose(
        parameters(*s.tower->layers[0])[0].grad()->full_tensor(),
        want.at("0.weight") / 2, 1e-4, 1e-6));
  });
}

TEST(DivideFactor, OfOneRankAndBadOnes) {
  if (!is_initialized()) init_process_group();
  for (const double factor : {1.0, 2.0}) {
    Tower tower = MakeTower();
    FSDPModule root = fully_shard(tower);
    root.set_gradient_divide_factor(factor);
    LossOf(tower, InputOf(0)).backward();
    ExpectGradients(tower, 1 / factor, {0});
  }
  Tower tower = MakeTower();
  FSDPModule root = fully_shard(tower);
  for (const double bad : {0.0, -2.0, std::nan("")}) {
    ExpectError<c10::ValueError>([&] { root.set_gradient_divide_factor(bad); },
                                 {"divide factor", "not positive"});
  }
  LossOf(tower, InputOf(0)).backward();
  ExpectGradients(tower, 1, {0});
}

}  // namespace
}  // namespace fsdp::testing
