// SPDX-License-Identifier: Apache-2.0
// fully_shard over tensor parallelism: a module that already holds a part of
// two linears is sharded again over the data-parallel axis.

#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/optim/clip_grad_norm.h"
#include "gtest/gtest.h"
#include "tests/fsdp/parallel_mlp.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/optim/sgd.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

// 4 ranks as 2 x 2; `hidden` rows of `up`: half of them on each rank of tp,
// cut once more, evenly or not, by FSDP.
void TrainOn2DMesh(int64_t hidden, ReshardAfterForward reshard) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  const DeviceMesh dp = mesh["dp"], tp = mesh["tp"];
  torch::manual_seed(7);
  Mlp reference(hidden, nullptr);
  Mlp model = Parallelize(reference, tp);
  FullyShardOptions options = ParallelOptions(reference, dp, tp);
  options.reshard_after_forward = reshard;
  fully_shard(model, options);

  torch::optim::SGD reference_step(reference->parameters(), 0.1);
  torch::optim::SGD step(model->parameters(), 0.1);
  for (int i = 0; i < 4; ++i) {
    const torch::Tensor batch = torch::randn({6, kMlpDim});  // equal everywhere
    const torch::Tensor mine = batch.narrow(0, 3 * dp.get_local_rank(), 3);
    reference_step.zero_grad();
    step.zero_grad();
    reference->forward(batch).square().mean().backward();
    model->forward(mine).square().mean().backward();
    const auto expected = reference->named_parameters();
    for (const auto& [name, parameter] : named_parameters(*model)) {
      EXPECT_EQ(parameter.device_mesh(), mesh) << name;
      ASSERT_TRUE(parameter.grad().has_value()) << name;
      EXPECT_TRUE(torch::allclose(parameter.grad()->full_tensor(),
                                  expected[name].grad(), 1e-5, 1e-7))
          << name << " in step " << i;
      EXPECT_TRUE(
          torch::allclose(parameter.full_tensor(), expected[name], 1e-5, 1e-6))
          << name << " in step " << i;
    }
    double squares = 0;
    for (const auto& p : reference->parameters()) {
      squares += p.grad().square().sum().item<double>();
    }
    EXPECT_NEAR(clip_grad_norm_(parameters(*model), 1e9).item<double>(),
                std::sqrt(squares), 1e-5);
    reference_step.step();
    step.step();
  }
}

TEST(TensorParallel, TrainsAsTheWholeModule) {
  RunRanks(4, [] {
    init_process_group();
    TrainOn2DMesh(/*hidden=*/8, {});
    TrainOn2DMesh(/*hidden=*/8, false);
  });
}

TEST(TensorParallel, UnevenPiecesAreStridedShards) {
  RunRanks(4, [] {
    init_process_group();
    TrainOn2DMesh(/*hidden=*/6, true);
  });
}

TEST(TensorParallel, PlacementsNameBothCuts) {
  RunRanks(4, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    Mlp whole(8, nullptr);
    Mlp model = Parallelize(whole, mesh["tp"]);
    fully_shard(model, ParallelOptions(whole, mesh["dp"], mesh["tp"]));
    for (const auto& [name, parameter] : named_parameters(*model)) {
      const Placement expected = PlacementOf(name).is_shard(0)
                                     ? Placement(StridedShard(0, 2))
                                     : Placement(Shard(0));
      EXPECT_EQ(parameter.placements()[0], expected) << name;
      EXPECT_EQ(parameter.placements()[1], PlacementOf(name)) << name;
      EXPECT_EQ(parameter.shape(), whole->named_parameters()[name].sizes())
          << name;
    }
  });
}

TEST(TensorParallel, RefusesWhatItCannotDo) {
  RunRanks(4, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const DeviceMesh other = init_device_mesh("cpu", {2, 2}, {"a", "b"});
    Mlp whole(8, nullptr);
    Mlp model = Parallelize(whole, mesh["tp"]);
    const auto shard = [&](const FullyShardOptions& options) {
      return ThrownMessage([&] { fully_shard(model, options); });
    };
    FullyShardOptions options = ParallelOptions(whole, mesh["dp"], mesh["tp"]);
    options.reshard_after_forward = 2;
    EXPECT_NE(shard(options).find("cannot be combined with tensor parallelism"),
              std::string::npos);
    EXPECT_NE(shard(ParallelOptions(whole, other["a"], mesh["tp"]))
                  .find("not slices of one mesh"),
              std::string::npos);
    EXPECT_NE(
        shard(ParallelOptions(whole, mesh["tp"], mesh["tp"])).find("overlap"),
        std::string::npos);
    Mlp larger(16, nullptr);
    EXPECT_NE(shard(ParallelOptions(larger, mesh["dp"], mesh["tp"]))
                  .find("gives this rank [8"),
              std::string::npos);
    // Nothing of that changed the module.
    EXPECT_EQ(model->up->weight.sizes(), (std::vector<int64_t>{4, kMlpDim}));
    fully_shard(model, ParallelOptions(whole, mesh["dp"], mesh["tp"]));
  });
}

TEST(TensorParallel, ClonesOfAShardedModuleAreRefused) {
  RunRanks(2, [] {
    init_process_group();
    torch::nn::Sequential model(torch::nn::Linear(4, 4));
    fully_shard(model);
    EXPECT_NE(ThrownMessage([&] { model->clone(); }).find("cloned module"),
              std::string::npos);
    EXPECT_TRUE(model->buffers().empty());
  });
}

}  // namespace
}  // namespace fsdp::testing
