// SPDX-License-Identifier: Apache-2.0
// Tests FSDPModule: the calls that gather and free parameters, the settings
// that reach the next step, and the reports from handles.

#include "fsdp/fsdp_module.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/engine/fsdp_state.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/forward.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/module_snapshot.h"
#include "tests/fsdp/sharded_tower.h"
#include "tests/fsdp/tiny_model.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Unshard, GathersOwnParametersAndKeepsThem) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    const Tower whole = MakeTower();
    s.root.unshard();
    EXPECT_THAT(s.Counts(), ElementsAre("gathers 1"));
    EXPECT_TRUE(s.root.is_unsharded());
    EXPECT_FALSE(s.layers[0].is_unsharded());
    EXPECT_TRUE(s.tower->stem->weight.equal(whole->stem->weight));
    s.root.unshard();
    EXPECT_THAT(s.Counts(), IsEmpty());
    s.layers[2].unshard();
    EXPECT_THAT(s.Counts(), ElementsAre("gathers 1"));
    // Forward uses the gathered parameters, and does not drop them before they
    // are used.
    s.Forward();
    EXPECT_THAT(s.Counts(), ElementsAre("gathers 2"));
    EXPECT_FALSE(s.layers[2].is_unsharded());
    s.Backward();
    ExpectGradients(s.tower, 0.5, {0, 1});
  });
}

TEST(Unshard, AsyncIsAwaitedOnceOrByForward) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    UnshardHandle handle = s.layers[0].unshard(/*async=*/true);
    EXPECT_THAT(s.Counts(), ElementsAre("gathers 1"));
    EXPECT_FALSE(s.layers[0].is_unsharded());
    handle.wait();
    EXPECT_TRUE(s.layers[0].is_unsharded());
    handle.wait();
    UnshardHandle left = s.layers[1].unshard(/*async=*/true);
    reset_step_report(*s.tower);
    s.Forward();
    EXPECT_THAT(s.Counts(), ElementsAre("gathers 3"));
    EXPECT_EQ(step_report(*s.tower).num_prefetched, 1);
    // The gather that the handle belongs to is over.
    left.wait();
    EXPECT_FALSE(s.layers[1].is_unsharded());
    s.Backward();
    ExpectGradients(s.tower, 0.5, {0, 1});
  });
}

TEST(Unshard, WithoutParametersIsNothing) {
  RunRanks(2, [] {
    InitRank();
    torch::nn::Sequential model(torch::nn::Linear(4, 4),
                                torch::nn::Linear(4, 4));
    for (const auto& child : model->children()) fully_shard(child);
    FSDPModule root = fully_shard(model);
    CountingBackend& counts =
        Count(fsdp_modules(*model)[1].state()->group()->config().shard_group);
    root.unshard().wait();
    UnshardHandle handle = root.unshard(/*async=*/true);
    handle.wait();
    root.reshard();
    EXPECT_FALSE(root.is_unsharded());
    EXPECT_EQ(counts.ToString(), "");
    model->forward(torch::ones({1, 4})).sum().backward();
    // Nothing follows the last layer in forward, so it stays gathered for
    // backward.
    EXPECT_EQ(counts.ToString(), "all_gather 3, reduce_scatter 2");
  });
}

TEST(Reshard, FreesOwnParametersAlone) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    s.root.unshard();
    s.layers[0].unshard();
    const uint64_t both = step_report(*s.tower).unsharded_bytes;
    s.root.reshard();
    EXPECT_FALSE(s.root.is_unsharded());
    EXPECT_TRUE(s.layers[0].is_unsharded());
    EXPECT_THROW(s.tower->stem->weight.storage().data(), c10::Error);
    EXPECT_EQ(s.tower->stem->weight.sizes(), (std::vector<int64_t>{6, 4}));
    // 6 x 6 weights and 6 biases.
    EXPECT_EQ(step_report(*s.tower).unsharded_bytes, 42 * sizeof(float));
    // 6 x 4 and 4 x 6 weights, 6 and 4 biases.
    EXPECT_EQ(both, (42 + 58) * sizeof(float));
    s.root.reshard();
    s.layers[0].reshard();
    EXPECT_EQ(step_report(*s.tower).unsharded_bytes, 0U);
    // A gather under way is dropped.
    UnshardHandle handle = s.layers[1].unshard(/*async=*/true);
    s.layers[1].reshard();
    handle.wait();
    EXPECT_FALSE(s.layers[1].is_unsharded());
    EXPECT_EQ(step_report(*s.tower).unsharded_bytes, 0U);
    s.Forward();
    s.Backward();
    ExpectGradients(s.tower, 0.5, {0, 1});
  });
}

// Gathers in forward and backward after both were prepared, through a boundary,
// so that the end of the root's forward is seen.
Log GathersOf(Sharded& s) {
  s.counts->Reset();
  torch::Tensor loss = fsdp::forward(s.tower, InputOf(get_rank())).pow(2).sum();
  Log log = {s.counts->ToString()};
  s.counts->Reset();
  loss.backward();
  log.push_back(s.counts->ToString());
  ExpectGradients(s.tower, 0.5, {0, 1});
  ClearGradients(*s.tower);
  return log;
}

TEST(SetReshardAfterForward, ChangesWhatBackwardGathers) {
  RunRanks(2, [] {
    InitRank();
    const std::string forward = "all_gather 4";
    for (const bool recurse : {true, false}) {
      Sharded to_true = ShardTower({.reshard_after_forward = false});
      EXPECT_THAT(GathersOf(to_true), ElementsAre(forward, "reduce_scatter 4"));
      to_true.root.set_reshard_after_forward(true, recurse);
      EXPECT_THAT(
          GathersOf(to_true),
          ElementsAre(forward, recurse ? "all_gather 4, reduce_scatter 4"
                                       : "all_gather 1, reduce_scatter 4"));
      Sharded to_false = ShardTower({.reshard_after_forward = true});
      EXPECT_THAT(GathersOf(to_false),
                  ElementsAre(forward, "all_gather 4, reduce_scatter 4"));
      to_false.root.set_reshard_after_forward(false, recurse);
      EXPECT_THAT(
          GathersOf(to_false),
          ElementsAre(forward, recurse ? "reduce_scatter 4"
                                       : "all_gather 3, reduce_scatter 4"));
    }
    Sharded unset = ShardTower();
    EXPECT_THAT(GathersOf(unset),
                ElementsAre(forward, "all_gather 3, reduce_scatter 4"));
    // There is only one layer.
    unset.layers[1].set_reshard_after_forward(false);
    EXPECT_THAT(GathersOf(unset),
                ElementsAre(forward, "all_gather 2, reduce_scatter 4"));
  });
}

TEST(SetReshardAfterBackward, KeepsParametersForTheNextForward) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower({.reshard_after_forward = false});
    s.root.set_reshard_after_backward(false);
    s.Forward();
    s.Backward();
    EXPECT_TRUE(s.root.is_unsharded());
    EXPECT_TRUE(s.layers[1].is_unsharded());
    s.counts->Reset();
    s.Forward();
    EXPECT_THAT(s.Counts(), IsEmpty());
    s.root.set_reshard_after_backward(true);
    s.Backward();
    EXPECT_FALSE(s.root.is_unsharded());
    EXPECT_FALSE(s.layers[1].is_unsharded());
    s.root.set_reshard_after_backward(false, /*recurse=*/false);
    s.Forward();
    s.Backward();
    EXPECT_TRUE(s.root.is_unsharded());
    EXPECT_FALSE(s.layers[1].is_unsharded());
    ExpectGradients(s.tower, 1.5, {0, 1});
  });
}

TEST(SetUnshardInBackward, LeavesOutAGather) {
  RunRanks(2, [] {
    InitRank();
    torch::manual_seed(11);
    TinyModel reference;
    torch::manual_seed(11);
    TinyModel model;
    FSDPModule tokens = fully_shard(model->tokens);
    tokens.set_unshard_in_backward(false);
    fully_shard(model);
    CountingBackend& counts =
        Count(tokens.state()->group()->config().shard_group);
    const torch::Tensor batch = TinyBatch(0);
    torch::Tensor loss = TinyLoss(model, batch);
    EXPECT_EQ(counts.ToString(), "all_gather 2");
    loss.backward();
    EXPECT_EQ(counts.ToString(), "all_gather 2, reduce_scatter 2");
    TinyLoss(reference, batch).backward();
    EXPECT_TRUE(
        torch::allclose(parameters(*model->tokens)[0].grad()->full_tensor(),
                        reference->tokens->weight.grad(), 1e-4, 1e-6));
  });
}

TEST(PostOptimEvent, IsTheRootsAndConsumedOnce) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    const auto event = std::make_shared<c10::Event>(c10::kCPU);
    ExpectError<c10::Error>([&] { s.layers[1].set_post_optim_event(event); },
                            {"is for the root, not for '1'"});
    EXPECT_EQ(event.use_count(), 1);
    s.root.set_post_optim_event(event);
    EXPECT_EQ(event.use_count(), 2);
    s.Forward();
    EXPECT_EQ(event.use_count(), 1);
    s.Backward();
    ExpectGradients(s.tower, 0.5, {0, 1});
  });
}

TEST(Handles, NamesRootsAndOrder) {
  if (!is_initialized()) init_process_group();
  torch::manual_seed(11);
  TinyModel model;
  fully_shard(model->blocks[2]);
  const FSDPModule attention =
      fully_shard(model->blocks[0]->as<Block>()->attention);
  EXPECT_TRUE(attention.is_root());
  EXPECT_EQ(attention.name(), "");
  const FSDPModule block = fully_shard(model->blocks[0]);
  EXPECT_EQ(attention.name(), "attention");
  const FSDPModule root = fully_shard(model);
  Log names;
  int num_roots = 0;
  for (const FSDPModule& module : fsdp_modules(*model)) {
    names.push_back(module.name());
    num_roots += module.is_root() ? 1 : 0;
  }
  EXPECT_THAT(names,
              ElementsAre("", "blocks.0", "blocks.0.attention", "blocks.2"));
  EXPECT_EQ(num_roots, 1);
  EXPECT_TRUE(root.is_root());
  EXPECT_EQ(fsdp_modules(*model->blocks[0]),
            (std::vector<FSDPModule>{block, attention}));
  const auto registered = model->named_parameters();
  const auto named = fsdp::named_parameters(*model);
  ASSERT_EQ(named.size(), registered.size());
  for (size_t i = 0; i < named.size(); ++i) {
    EXPECT_EQ(named[i].first, registered[i].key());
    EXPECT_TRUE(named[i].second.to_local().is_same(registered[i].value()));
  }
}

TEST(Handles, OfModulesAndTensorsThatAreNotSharded) {
  if (!is_initialized()) init_process_group();
  const Tower tower = MakeTower();
  EXPECT_FALSE(find_fsdp_module(*tower).has_value());
  ExpectError<c10::ValueError>([&] { get_fsdp_module(*tower); },
                               {"fully_shard was not applied", "Tower"});
  EXPECT_THAT(fsdp_modules(*tower), IsEmpty());
  EXPECT_THAT(parameters(*tower), IsEmpty());
  EXPECT_FALSE(dtensor_of(tower->stem->weight).has_value());
  EXPECT_FALSE(dtensor_of(torch::Tensor()).has_value());
  fully_shard(tower->stem);
  // The member and the registry's entry are one parameter.
  const torch::Tensor shard = ParameterRegistry(*tower->stem)["weight"];
  EXPECT_FALSE(shard.is_same(tower->stem->weight));
  EXPECT_TRUE(dtensor_of(shard)->to_local().is_same(shard));
  EXPECT_TRUE(dtensor_of(tower->stem->weight)->to_local().is_same(shard));
  EXPECT_FALSE(dtensor_of(shard.detach()).has_value());
  EXPECT_FALSE(dtensor_of(tower->top->weight).has_value());
  EXPECT_EQ(fsdp_modules(*tower).size(), 1U);
  EXPECT_EQ(parameters(*tower).size(), 2U);
}

TEST(Shards, AreTheStateBeforeAndAfterForward) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower({.reshard_after_forward = false});
    const auto before = s.tower->named_parameters();
    std::vector<torch::Tensor> values;
    for (const auto& item : before) {
      values.push_back(item.value().detach().clone());
    }
    const void* memory = before[0].value().data_ptr();
    s.Forward();
    EXPECT_TRUE(s.layers[0].is_unsharded());
    const auto after = s.tower->named_parameters();
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(after[i].key(), before[i].key());
      EXPECT_TRUE(after[i].value().is_same(before[i].value()));
      EXPECT_TRUE(after[i].value().equal(values[i])) << before[i].key();
    }
    EXPECT_EQ(after[0].value().data_ptr(), memory);
    // Loading writes into the shards; reshard drops the gathered parameters.
    {
      const torch::NoGradGuard no_grad;
      for (const auto& item : after) item.value().fill_(0.25);
    }
    for (FSDPModule& module : fsdp_modules(*s.tower)) module.reshard();
    Tower want = MakeTower();
    {
      const torch::NoGradGuard no_grad;
      for (auto& p : want->parameters()) p.fill_(0.25);
    }
    EXPECT_TRUE(torch::allclose(s.tower->forward(InputOf(0)),
                                want->forward(InputOf(0))));
  });
}

TEST(Shards, MayBeOfAnotherDtype) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    s.Forward();
    s.Backward();
    ClearGradients(*s.tower);
    s.tower->to(torch::kDouble);
    Tower want = MakeTower();
    want->to(torch::kDouble);
    const torch::Tensor x = InputOf(0).to(torch::kDouble);
    const torch::Tensor out = s.tower->forward(x);
    EXPECT_EQ(out.scalar_type(), torch::kDouble);
    EXPECT_TRUE(torch::allclose(out, want->forward(x)));
    out.sum().backward();
    const DTensor weight = parameters(*s.tower)[0];
    EXPECT_EQ(weight.scalar_type(), torch::kDouble);
    EXPECT_EQ(weight.grad()->scalar_type(), torch::kDouble);
    // A gather in flight does not keep the old values.
    UnshardHandle handle = s.layers[0].unshard();
    s.layers[0].reshard();
    s.tower->to(torch::kFloat);
    EXPECT_EQ(s.tower->forward(InputOf(0)).scalar_type(), torch::kFloat);
  });
}

TEST(ShareCommContext, TakesTheFirstRoots) {
  RunRanks(2, [] {
    InitRank();
    Sharded a = ShardTower();
    Sharded b = ShardTower();
    ExpectError<c10::ValueError>(
        [&] {
          share_comm_ctx({a.root, b.layers[1]});
        },
        {"roots", "'1'"});
    share_comm_ctx({});
    share_comm_ctx({a.root, b.root});
    reset_step_report(*a.tower);
    a.Forward();
    b.Forward();
    // One report for both.
    EXPECT_EQ(step_report(*a.tower).num_all_gathers, 8);
    EXPECT_EQ(step_report(*b.tower).num_all_gathers, 8);
    b.Backward();
    a.Backward();
    ExpectGradients(a.tower, 0.5, {0, 1});
    ExpectGradients(b.tower, 0.5, {0, 1});
    // A pipeline: the backward of one inside that of the other.
    ClearGradients(*a.tower);
    ClearGradients(*b.tower);
    const torch::Tensor x = InputOf(get_rank());
    const torch::Tensor loss = LossOf(b.tower, a.tower->forward(x));
    loss.backward();
    Tower c = MakeTower();
    Tower d = MakeTower();
    for (const int64_t rank : {0, 1}) {
      LossOf(d, c->forward(InputOf(rank))).backward();
    }
    for (size_t i = 0; i < c->parameters().size(); ++i) {
      EXPECT_TRUE(torch::allclose(parameters(*a.tower)[i].grad()->full_tensor(),
                                  c->parameters()[i].grad() / 2, 1e-4, 1e-6));
      EXPECT_TRUE(torch::allclose(parameters(*b.tower)[i].grad()->full_tensor(),
                                  d->parameters()[i].grad() / 2, 1e-4, 1e-6));
    }
  });
}

}  // namespace
}  // namespace fsdp::testing
