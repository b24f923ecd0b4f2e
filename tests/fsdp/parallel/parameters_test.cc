// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/parameters.h"

#include <memory>
#include <optional>
#include <string>

#include "ATen/Parallel.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/mesh_collectives.h"
#include "fsdp/module/materialize.h"
#include "fsdp/optim/clip_grad_norm.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/optim/adamw.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::HasSubstr;

// Two linears with a forward that is written for parts: it adds up the results
// from the ranks in `tp`.
struct PartsImpl : torch::nn::Module {
  explicit PartsImpl(std::optional<DeviceMesh> mesh = {})
      : tp(std::move(mesh)) {
    up = register_module("up", torch::nn::Linear(4, 6));
    down = register_module("down", torch::nn::Linear(6, 4));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor partial =
        torch::relu(torch::linear(x, up->weight, up->bias))
            .matmul(down->weight.t());
    if (!tp.has_value()) return partial + down->bias;
    return Sum::apply(partial, *tp) + down->bias;
  }
  struct Sum : torch::autograd::Function<Sum> {
    static torch::Tensor forward(torch::autograd::AutogradContext* /*ctx*/,
                                 const torch::Tensor& x, DeviceMesh mesh) {
      torch::Tensor sum = x.clone();
      AllReduce(sum, ReduceOp::kSum, mesh.get_group());
      return sum;
    }
    static torch::autograd::variable_list backward(
        torch::autograd::AutogradContext* /*ctx*/,
        torch::autograd::variable_list grads) {
      return {grads[0], torch::Tensor()};
    }
  };
  std::optional<DeviceMesh> tp;
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Parts);

void Start() {
  at::set_num_threads(1);
  init_process_group();
}

void Cut(Parts& model, const DeviceMesh& tp) {
  parallelize_parameters(*model->up, tp,
                         {{"weight", {Shard(0)}}, {"bias", {Shard(0)}}});
  parallelize_parameters(*model->down, tp,
                         {{"weight", {Shard(1)}}, {"bias", {Replicate()}}});
}

// Makes the same AdamW steps as one process.
void TrainAsOne(Parts& model, Parts& whole, int64_t begin, int64_t length) {
  torch::optim::AdamW step(model->parameters(), 0.1);
  torch::optim::AdamW reference_step(whole->parameters(), 0.1);
  for (int i = 0; i < 3; ++i) {
    const torch::Tensor batch = torch::randn({4, 4});
    step.zero_grad();
    reference_step.zero_grad();
    model->forward(batch.narrow(0, begin, length)).square().mean().backward();
    whole->forward(batch).square().mean().backward();
    clip_grad_norm_(parameters(*model), 0.1);
    torch::nn::utils::clip_grad_norm_(whole->parameters(), 0.1);
    step.step();
    reference_step.step();
    const auto expected = whole->named_parameters();
    ASSERT_EQ(named_parameters(*model).size(), 4u);
    for (const auto& [name, parameter] : named_parameters(*model)) {
      EXPECT_TRUE(
          torch::allclose(parameter.full_tensor(), expected[name], 1e-4, 1e-6))
          << name << " in step " << i;
    }
  }
}

TEST(ParallelParameters, TrainAsTheWholeModule) {
  RunRanks(2, [] {
    Start();
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    torch::manual_seed(1 + get_rank());  // rank 0's values count
    Parts model(tp);
    torch::manual_seed(1);
    Parts whole;
    Cut(model, tp);
    EXPECT_EQ(model->up->weight.sizes(), torch::IntArrayRef({3, 4}));
    TrainAsOne(model, whole, 0, 4);
    EXPECT_EQ(dtensor_of(model->up->weight)->device_mesh(), tp);
    EXPECT_EQ(dtensor_of(model->up->weight)->placements(),
              Placements({Shard(0)}));
  });
}

TEST(ParallelParameters, AreTakenOverByFullyShard) {
  RunRanks(4, [] {
    Start();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    torch::manual_seed(1);
    Parts model(mesh["tp"]);
    torch::manual_seed(1);
    Parts whole;
    Cut(model, mesh["tp"]);
    fully_shard(*model->up, {.mesh = mesh["dp"]});
    fully_shard(model, {.mesh = mesh["dp"]});
    EXPECT_EQ(dtensor_of(model->up->weight)->device_mesh(), mesh);
    EXPECT_EQ(dtensor_of(model->up->weight)->placements(),
              Placements({StridedShard(0, 2), Shard(0)}));
    EXPECT_EQ(dtensor_of(model->down->weight)->placements(),
              Placements({Shard(0), Shard(1)}));
    EXPECT_EQ(dtensor_of(model->down->bias)->placements(),
              Placements({Shard(0), Replicate()}));
    TrainAsOne(model, whole, 2 * mesh.get_local_rank("dp"), 2);
  });
}

TEST(ParallelParameters, MayBeOnTheMetaDevice) {
  RunRanks(2, [] {
    Start();
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    std::optional<Parts> model;
    {
      const MetaDeviceGuard meta;
      model.emplace(tp);
    }
    Cut(*model, tp);
    EXPECT_TRUE((*model)->up->weight.is_meta());
    to_empty(**model, at::kCPU);
    EXPECT_EQ(dtensor_of((*model)->up->weight)->to_local().sizes(),
              torch::IntArrayRef({3, 4}));
  });
}

TEST(ParallelParameters, NameMistakes) {
  RunRanks(2, [] {
    Start();
    const DeviceMesh mesh = init_device_mesh("cpu", {1, 2}, {"dp", "tp"});
    const DeviceMesh tp = mesh["tp"];
    Parts model(tp);
    const auto cut = [&](const std::string& name, Placements placements) {
      return ThrownMessage([&] {
        parallelize_parameters(*model->up, tp, {{name, placements}});
      });
    };
    EXPECT_THAT(cut("weights", {Shard(0)}),
                HasSubstr("no parameter 'weights'"));
    EXPECT_THAT(cut("weight", {Partial()}), HasSubstr("cannot be Partial"));
    EXPECT_THAT(cut("weight", {Shard(2)}), HasSubstr("2"));
    EXPECT_EQ(model->up->weight.sizes(), torch::IntArrayRef({6, 4}));
    Cut(model, tp);
    EXPECT_THAT(cut("weight", {Shard(0)}), HasSubstr("Parallelize first"));
    const torch::optim::AdamW early(model->parameters(), 0.1);
    EXPECT_THAT(
        ThrownMessage([&] { fully_shard(model, {.mesh = mesh["dp"]}); }),
        HasSubstr("Build the optimizer"));
  });
}

}  // namespace
}  // namespace fsdp::testing
