// fully_shard over tensor parallelism: a module that holds its part of two
// linears already is sharded again over the data-parallel axis.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/clip_grad_norm.h"
#include "fsdp/device_mesh.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh_collectives.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "torch/autograd.h"
#include "torch/nn.h"
#include "torch/optim/sgd.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

constexpr int64_t kDim = 5;

// The sum over the axis; its gradient is each rank's own.
struct SumOverAxis : torch::autograd::Function<SumOverAxis> {
  static torch::Tensor forward(torch::autograd::AutogradContext* /*context*/,
                               const torch::Tensor& x, ProcessGroup group) {
    torch::Tensor sum = x.clone();
    AllReduce(sum, ReduceOp::kSum, group);
    return sum;
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* /*context*/,
      torch::autograd::variable_list grads) {
    return {grads[0], torch::Tensor()};
  }
};

// y = down(relu(up(x))) + bias: `up` cut by rows, `down` by columns.
struct MlpImpl : torch::nn::Module {
  MlpImpl(int64_t hidden, ProcessGroup axis) : group(std::move(axis)) {
    up = register_module("up", torch::nn::Linear(kDim, hidden));
    down = register_module(
        "down",
        torch::nn::Linear(torch::nn::LinearOptions(hidden, kDim).bias(false)));
    bias = register_parameter("bias", torch::zeros({kDim}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = down(torch::relu(up(x)));
    if (group) y = SumOverAxis::apply(y, group);
    return y + bias;
  }
  torch::nn::Linear up{nullptr}, down{nullptr};
  torch::Tensor bias;
  ProcessGroup group;  // null: the whole module
};
TORCH_MODULE(Mlp);

// The tensor-parallel placement of each parameter.
Placement PlacementOf(const std::string& name) {
  if (name == "up.weight" || name == "up.bias") return Shard(0);
  if (name == "down.weight") return Shard(1);
  return Replicate();
}

// This rank's part of `whole`, and the specs that say so.
Mlp Parallelize(const Mlp& whole, const DeviceMesh& tp) {
  const torch::NoGradGuard no_grad;
  const int64_t hidden = whole->up->weight.size(0);
  Mlp part(hidden / tp.size(), tp.get_group());
  const auto values = whole->named_parameters();
  for (const auto& item : part->named_parameters()) {
    item.value().copy_(distribute_tensor(values[item.key()].detach(), tp,
                                         {PlacementOf(item.key())})
                           .to_local());
  }
  return part;
}

FullyShardOptions OptionsFor(const Mlp& whole, const DeviceMesh& dp,
                             const DeviceMesh& tp) {
  FullyShardOptions options{.mesh = dp};
  const auto values = whole->named_parameters();
  options.tensor_parallel_fn =
      [values, tp](const std::string& name,
                   const at::Tensor&) -> std::optional<DTensorSpec> {
    const at::Tensor& value = values[name];
    return DTensorSpec{.mesh = tp,
                       .placements = {PlacementOf(name)},
                       .shape = value.sizes().vec(),
                       .stride = value.strides().vec()};
  };
  return options;
}

// 4 ranks as 2 x 2; `hidden` rows of `up`: half of them on each rank of tp,
// cut once more, evenly or not, by FSDP.
void TrainOn2DMesh(int64_t hidden, ReshardAfterForward reshard) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  const DeviceMesh dp = mesh["dp"], tp = mesh["tp"];
  torch::manual_seed(7);
  Mlp reference(hidden, nullptr);
  Mlp model = Parallelize(reference, tp);
  FullyShardOptions options = OptionsFor(reference, dp, tp);
  options.reshard_after_forward = reshard;
  fully_shard(model, options);

  torch::optim::SGD reference_step(reference->parameters(), 0.1);
  torch::optim::SGD step(model->parameters(), 0.1);
  for (int i = 0; i < 4; ++i) {
    const torch::Tensor batch = torch::randn({6, kDim});  // equal everywhere
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
    fully_shard(model, OptionsFor(whole, mesh["dp"], mesh["tp"]));
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
      return ErrorOf([&] { fully_shard(model, options); });
    };
    FullyShardOptions options = OptionsFor(whole, mesh["dp"], mesh["tp"]);
    options.reshard_after_forward = 2;
    EXPECT_NE(shard(options).find("cannot be combined with tensor parallelism"),
              std::string::npos);
    EXPECT_NE(shard(OptionsFor(whole, other["a"], mesh["tp"]))
                  .find("not slices of one mesh"),
              std::string::npos);
    EXPECT_NE(shard(OptionsFor(whole, mesh["tp"], mesh["tp"])).find("overlap"),
              std::string::npos);
    Mlp larger(16, nullptr);
    EXPECT_NE(shard(OptionsFor(larger, mesh["dp"], mesh["tp"]))
                  .find("gives this rank [8"),
              std::string::npos);
    // Nothing of that changed the module.
    EXPECT_EQ(model->up->weight.sizes(), (std::vector<int64_t>{4, kDim}));
    fully_shard(model, OptionsFor(whole, mesh["dp"], mesh["tp"]));
  });
}

TEST(TensorParallel, ClonesOfAShardedModuleAreRefused) {
  RunRanks(2, [] {
    init_process_group();
    torch::nn::Sequential model(torch::nn::Linear(4, 4));
    fully_shard(model);
    EXPECT_NE(ErrorOf([&] { model->clone(); }).find("cloned module"),
              std::string::npos);
    EXPECT_TRUE(model->buffers().empty());
  });
}

}  // namespace
}  // namespace fsdp::testing
