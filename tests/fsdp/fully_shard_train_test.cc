// SPDX-License-Identifier: Apache-2.0
// Training with and without fully_shard: the same losses and the same
// parameters, for every way to shard.

#include <functional>
#include <string>
#include <vector>

#include "fsdp/forward.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/module/activation_checkpoint.h"
#include "gtest/gtest.h"
#include "tests/fsdp/tiny_model.h"
#include "tests/testing/ranks.h"
#include "torch/optim/adam.h"

namespace fsdp::testing {
namespace {

constexpr int64_t kBatch = 12;

// How a run is set up; the reference runs without any of this.
struct Run {
  int world = 2;
  FullyShardOptions options = {};
  std::vector<int64_t> mesh_shape = {};  // empty: one axis of `world`
  TinyModelOptions model = {};
  int steps = 6;
  int microbatches = 1;
  // Called on the sharded model before training, with every microbatch's
  // number, and in place of shard_blocks if set.
  std::function<void(TinyModel&)> prepare = {};
  std::function<void(TinyModel&, int microbatch, bool last)> before_microbatch =
      {};
  std::function<void(TinyModel&, const FullyShardOptions&)> shard = {};
  // Applied to both models before anything else.
  std::function<void(TinyModel&)> both = {};
  bool explicit_boundary = false;
  double tolerance = 2e-6;
};

void ShardBlocks(TinyModel& model, const FullyShardOptions& options) {
  for (const auto& block : *model->blocks) fully_shard(block, options);
  FullyShardOptions root = options;
  if (options.reshard_after_forward.as_num_ranks() != nullptr) {
    root.reshard_after_forward = {};
  }
  fully_shard(model, root);
}

torch::Tensor Slice(const torch::Tensor& batch, int64_t part, int64_t parts) {
  const int64_t size = batch.size(0) / parts;
  return batch.narrow(0, part * size, size);
}

// The same initial weights on every rank and in both models.
TinyModel MakeModel(const Run& run) {
  torch::manual_seed(42);
  TinyModel model(run.model);
  if (run.both) run.both(model);
  return model;
}

std::vector<double> TrainReference(const Run& run, TinyModel& model) {
  torch::optim::Adam optimizer(model->parameters(),
                               torch::optim::AdamOptions(1e-2).eps(1e-5));
  std::vector<double> losses;
  for (int step = 0; step < run.steps; ++step) {
    optimizer.zero_grad();
    const torch::Tensor loss =
        TinyLoss(model, TinyBatch(step, kBatch, run.model));
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

double Average(const torch::Tensor& loss) {
  std::vector<at::Tensor> sum{loss.detach().to(at::kDouble)};
  world_group()->allreduce(sum)->wait();
  return sum[0].item<double>() / static_cast<double>(get_world_size());
}

std::vector<double> TrainSharded(const Run& run, TinyModel& model) {
  torch::optim::Adam optimizer(model->parameters(),
                               torch::optim::AdamOptions(1e-2).eps(1e-5));
  std::vector<double> losses;
  for (int step = 0; step < run.steps; ++step) {
    optimizer.zero_grad(/*set_to_none=*/step % 2 == 0);
    const torch::Tensor mine =
        Slice(TinyBatch(step, kBatch, run.model), get_rank(), get_world_size());
    double sum = 0;
    for (int i = 0; i < run.microbatches; ++i) {
      if (run.before_microbatch) {
        run.before_microbatch(model, i, i == run.microbatches - 1);
      }
      const torch::Tensor part = Slice(mine, i, run.microbatches);
      const torch::Tensor loss = TinyLoss(model, part) / run.microbatches;
      loss.backward();
      sum += Average(loss);
    }
    optimizer.step();
    losses.push_back(sum);
  }
  return losses;
}

void ExpectParity(const Run& run) {
  RunRanks(run.world, [&] {
    at::set_num_threads(1);
    init_process_group();
    TinyModel reference = MakeModel(run);
    TinyModel model = MakeModel(run);
    FullyShardOptions options = run.options;
    const std::vector<std::string> names =
        run.mesh_shape.empty() ? std::vector<std::string>{"shard"}
                               : std::vector<std::string>{"replicate", "shard"};
    options.mesh = init_device_mesh("cpu",
                                    run.mesh_shape.empty()
                                        ? std::vector<int64_t>{run.world}
                                        : run.mesh_shape,
                                    names);
    (run.shard ? run.shard : ShardBlocks)(model, options);
    if (run.prepare) run.prepare(model);
    const std::vector<double> want = TrainReference(run, reference);
    const std::vector<double> got = TrainSharded(run, model);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got[i], want[i], run.tolerance) << "step " << i;
    }
    const auto expected = reference->named_parameters();
    const auto named = fsdp::named_parameters(*model);
    EXPECT_EQ(named.size(), model->named_parameters().size());
    for (const auto& [name, parameter] : named) {
      EXPECT_TRUE(torch::allclose(parameter.full_tensor(), expected[name],
                                  /*rtol=*/1e-4, /*atol=*/1e-5))
          << name;
    }
  });
}

TEST(FullyShardTrain, OneRank) { ExpectParity({.world = 1}); }

TEST(FullyShardTrain, TwoRanks) { ExpectParity({.world = 2}); }

TEST(FullyShardTrain, ThreeRanksUnevenAndEmptyShards) {
  ExpectParity({.world = 3, .model = {.vocabulary = 7, .length = 4}});
}

TEST(FullyShardTrain, FourRanksReshardAfterForward) {
  ExpectParity({.world = 4, .options = {.reshard_after_forward = true}});
}

TEST(FullyShardTrain, FourRanksKeepAfterForward) {
  ExpectParity({.world = 4, .options = {.reshard_after_forward = false}});
}

TEST(FullyShardTrain, FourRanksReshardToTwo) {
  ExpectParity({.world = 4, .options = {.reshard_after_forward = 2}});
}

TEST(FullyShardTrain, HybridTwoByTwo) {
  ExpectParity({.world = 4, .mesh_shape = {2, 2}});
}

TEST(FullyShardTrain, TiedWeightsInOneGroup) {
  ExpectParity({.world = 2, .model = {.tied = true}});
}

TEST(FullyShardTrain, LargestDimension) {
  ExpectParity(
      {.world = 2,
       .options = {.shard_placement_fn =
                       [](const at::Tensor& t) -> std::optional<Shard> {
         int64_t best = 0;
         for (int64_t d = 1; d < t.dim(); ++d) {
           if (t.size(d) > t.size(best)) best = d;
         }
         return Shard(best);
       }},
       .model = {.vocabulary = 36, .length = 8}});
}

TEST(FullyShardTrain, AccumulatesWithoutCommunication) {
  ExpectParity({.world = 2,
                .microbatches = 3,
                .before_microbatch = [](TinyModel& model, int, bool last) {
                  get_fsdp_module(*model).set_requires_gradient_sync(last);
                }});
}

TEST(FullyShardTrain, AccumulatesWithCommunication) {
  ExpectParity({.world = 2, .microbatches = 3});
}

TEST(FullyShardTrain, HybridPostponesTheAllReduce) {
  ExpectParity({.world = 4,
                .mesh_shape = {2, 2},
                .microbatches = 3,
                .before_microbatch = [](TinyModel& model, int, bool last) {
                  get_fsdp_module(*model).set_requires_all_reduce(last);
                  get_fsdp_module(*model).set_is_last_backward(last);
                }});
}

TEST(FullyShardTrain, KeepsParametersBetweenMicrobatches) {
  ExpectParity({.world = 2,
                .options = {.reshard_after_forward = false},
                .microbatches = 3,
                .before_microbatch = [](TinyModel& model, int, bool last) {
                  FSDPModule root = get_fsdp_module(*model);
                  root.set_requires_gradient_sync(last);
                  root.set_reshard_after_backward(last);
                  root.set_is_last_backward(last);
                }});
}

TEST(FullyShardTrain, FrozenBlock) {
  ExpectParity({.world = 2, .both = [](TinyModel& model) {
                  for (auto& p : model->blocks[1]->parameters()) {
                    p.set_requires_grad(false);
                  }
                }});
}

TEST(FullyShardTrain, NestedGroupsAndExplicitPrefetch) {
  ExpectParity(
      {.world = 2,
       .prepare =
           [](TinyModel& model) {
             std::vector<FSDPModule> blocks;
             for (const auto& block : *model->blocks) {
               blocks.push_back(get_fsdp_module(*block));
             }
             for (size_t i = 0; i + 1 < blocks.size(); ++i) {
               blocks[i].set_modules_to_forward_prefetch({blocks[i + 1]});
               blocks[i + 1].set_modules_to_backward_prefetch({blocks[i]});
             }
           },
       .shard =
           [](TinyModel& model, const FullyShardOptions& options) {
             for (const auto& block : *model->blocks) {
               auto* impl = block->as<Block>();
               fully_shard(impl->mlp, options);
               fully_shard(impl->attention, options);
             }
             ShardBlocks(model, options);
           }});
}

TEST(FullyShardTrain, ListOfModulesIsOneGroup) {
  ExpectParity(
      {.world = 2,
       .shard = [](TinyModel& model, const FullyShardOptions& options) {
         fully_shard({model->blocks[0], model->blocks[1]}, options);
         fully_shard({model->norm.ptr(), model->head.ptr()}, options);
         fully_shard(model, options);
       }});
}

}  // namespace
}  // namespace fsdp::testing
