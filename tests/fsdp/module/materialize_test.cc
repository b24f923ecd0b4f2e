// SPDX-License-Identifier: Apache-2.0

#include "fsdp/module/materialize.h"

#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include "fsdp/engine/lazy_key.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/module/init.h"
#include "fsdp/module/init_defaults.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/module/init_zoo.h"
#include "tests/testing/ranks.h"
#include "torch/torch.h"

namespace fsdp::testing {
namespace {

using at::Tensor;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Everything that a stock model has: parameters that layers cache (LSTM),
// layers that clone others (TransformerEncoder), buffers.
struct StockImpl : torch::nn::Module {
  explicit StockImpl(int64_t dim) {
    in = register_module("in", torch::nn::Linear(dim, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    lstm = register_module("lstm", torch::nn::LSTM(8, 8));
    encoder = register_module(
        "encoder",
        torch::nn::TransformerEncoder(torch::nn::TransformerEncoderOptions(
            torch::nn::TransformerEncoderLayerOptions(8, 2)
                .dim_feedforward(11)
                .dropout(0),
            2)));
    out = register_module("out", torch::nn::Linear(8, dim));
  }
  Tensor forward(const Tensor& x) {
    const Tensor h = norm(in(x).flatten(0, 1)).view({x.size(0), x.size(1), 8});
    return out(encoder(std::get<0>(lstm(h))));
  }
  torch::nn::Linear in{nullptr}, out{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::LSTM lstm{nullptr};
  torch::nn::TransformerEncoder encoder{nullptr};
};
TORCH_MODULE(Stock);

Stock StockOnMeta(int64_t dim) {
  const MetaDeviceGuard meta;
  return Stock(dim);
}

void ShardStock(Stock& model, const FullyShardOptions& options) {
  // Batch norm computes with statistics in float32 only.
  FullyShardOptions precise = options;
  precise.mp_policy = {};
  fully_shard(model->norm, precise);
  fully_shard(model->lstm, options);
  fully_shard(model->encoder, options);
  fully_shard(model, options);
}

// Every rank has the same batch, so that averages are those in one process,
// also inside BatchNorm.
std::vector<double> TrainStock(Stock& model) {
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  std::vector<double> losses;
  for (int step = 0; step < 2; ++step) {
    torch::manual_seed(static_cast<uint64_t>(step));
    const Tensor x = torch::randn({5, 4, model->in->options.in_features()});
    optimizer.zero_grad();
    const Tensor loss =
        (model->forward(x).to(torch::kFloat) - x).square().mean();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

// Distinct memory below the module's registry, in bytes.
size_t RegisteredBytes(const torch::nn::Module& module) {
  std::set<const void*> seen;
  size_t bytes = 0;
  for (const Tensor& t : module.parameters()) {
    const c10::StorageImpl* storage = t.storage().unsafeGetStorageImpl();
    if (seen.insert(storage).second) bytes += storage->nbytes();
  }
  return bytes;
}

size_t WholeBytes(const torch::nn::Module& module) {
  size_t bytes = 0;
  for (const auto& [name, t] : fsdp::named_parameters(module)) {
    bytes += static_cast<size_t>(t.numel()) * sizeof(float);
  }
  return bytes;
}

void CheckFromMeta(int64_t dim, const FullyShardOptions& options) {
  Stock plain(dim);
  init::default_(*plain, 42);
  Stock model = StockOnMeta(dim);
  for (const Tensor& t : model->parameters()) EXPECT_TRUE(t.is_meta());
  for (const Tensor& t : model->buffers()) EXPECT_TRUE(t.is_meta());
  ShardStock(model, options);
  for (const Tensor& t : model->parameters()) EXPECT_TRUE(t.is_meta());
  EXPECT_THAT(ThrownMessage([&] { init::default_(*model, 42); }),
              HasSubstr("to_empty"));
  EXPECT_THAT(ThrownMessage([&] {
                model->forward(torch::zeros({5, 4, dim}));
              }),
              AllOf(HasSubstr("meta device: in.weight, in.bias, "),
                    HasSubstr("fsdp::to_empty"), HasSubstr("fsdp::init")));

  const std::vector<Tensor> before = model->parameters();
  to_empty(model, torch::kCPU);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(before[i].is_same(model->parameters()[i]));
    EXPECT_TRUE(before[i].is_cpu());
  }
  for (const Tensor& t : model->buffers()) EXPECT_TRUE(t.is_cpu());
  // A tensor that nobody initialises is seen.
  for (const auto& tensors : {model->parameters(), model->buffers()}) {
    for (const Tensor& t : tensors) {
      if (!t.is_floating_point()) continue;
      EXPECT_TRUE(t.detach().isnan().all().item<bool>());
    }
  }
  EXPECT_THROW(model->in->weight.storage().data(), c10::Error);
  EXPECT_TRUE(model->in->weight.is_cpu());
  if (dim == 8 && get_world_size() == 4) {
    EXPECT_LE(RegisteredBytes(*model), WholeBytes(*model) / 3);
  }

  init::default_(*model, 42);
  ExpectSame(*model, *plain);
  const std::vector<double> want = TrainStock(plain);
  const std::vector<double> got = TrainStock(model);
  const bool rounds = options.mp_policy.param_dtype.has_value();
  for (size_t step = 0; step < want.size(); ++step) {
    EXPECT_NEAR(got[step], want[step], rounds ? 0.05 : 1e-5) << step;
  }
  const auto expected = plain->named_parameters();
  for (const auto& [name, t] : fsdp::named_parameters(*model)) {
    EXPECT_TRUE(torch::allclose(t.full_tensor(), expected[name], 1e-4,
                                rounds ? 0.05 : 1e-5))
        << name;
  }
}

TEST(Materialize, StockModulesFromMetaEvenUnevenAndEmptyShards) {
  RunRanks(4, [] {
    const FullyShardOptions options = OnCpu();
    FullyShardOptions low = options;
    low.mp_policy = {.param_dtype = torch::kBFloat16,
                     .reduce_dtype = torch::kFloat};
    for (const int64_t dim : {8, 3, 1}) {
      CheckFromMeta(dim, options);
      CheckFromMeta(dim, low);
    }
  });
}

TEST(Materialize, StockModulesFromMetaUnderHsdpAndOffload) {
  RunRanks(4, [] {
    init_process_group();
    CheckFromMeta(
        3, {.mesh = init_device_mesh("cpu", {2, 2}, {"replicate", "shard"})});
    FullyShardOptions offload = {.mesh = init_device_mesh("cpu", {4})};
    offload.offload_policy = CPUOffloadPolicy{.pin_memory = false};
    CheckFromMeta(5, offload);
  });
}

TEST(Materialize, ShardingInsideTheGuardWithTheDefaultMesh) {
  RunRanks(2, [] {
    init_process_group();
    torch::nn::Linear model(nullptr);
    {
      const MetaDeviceGuard meta;
      model = torch::nn::Linear(4, 3);
      fully_shard(model);
    }
    EXPECT_TRUE(model->parameters()[0].is_meta());
    to_empty(model, torch::kCPU);
    init::ones_(model->weight);
    init::zeros_(model->bias);
    const Tensor y = model->forward(torch::ones({1, 4}));
    EXPECT_TRUE(torch::equal(y, torch::full({1, 3}, 4.0)));
    y.sum().backward();
    EXPECT_TRUE(model->parameters()[0].grad().defined());
    // Back to the meta device and to memory once more; old gradients are gone.
    to_empty(model, torch::kMeta);
    EXPECT_TRUE(model->parameters()[0].is_meta());
    EXPECT_FALSE(model->parameters()[0].grad().defined());
    to_empty(model, torch::kCPU);
    init::ones_(model->weight);
    init::ones_(model->bias);
    EXPECT_TRUE(torch::equal(model->forward(torch::ones({1, 4})),
                             torch::full({1, 3}, 5.0)));
  });
}

TEST(Materialize, APlainModuleFromMeta) {
  torch::nn::Sequential model(nullptr);
  {
    const MetaDeviceGuard meta;
    model = torch::nn::Sequential(torch::nn::Linear(3, 4),
                                  torch::nn::BatchNorm1d(4));
  }
  auto linear = model->ptr<torch::nn::LinearImpl>(0);
  to_empty(model, torch::kCPU);
  init::default_(*model, 1);
  EXPECT_TRUE(linear->weight.is_same(model->parameters()[0]));
  EXPECT_TRUE(model->forward(torch::ones({2, 3})).requires_grad());
}

TEST(Materialize, BroadcastMakesReplicasEqual) {
  RunRanks(3, [] {
    init_process_group();
    const int64_t rank = get_rank();
    torch::nn::Sequential model(torch::nn::Linear(3, 4),
                                torch::nn::BatchNorm1d(4));
    init::default_(*model, static_cast<uint64_t>(rank));
    {
      const at::NoGradGuard no_grad;
      model->buffers()[0].fill_(rank);
      model->parameters()[2].set_data(
          torch::full({8}, static_cast<float>(rank)).slice(0, 0, 8, 2));
    }
    broadcast_module(model, world_group(), /*src=*/2);
    torch::nn::Sequential want(torch::nn::Linear(3, 4),
                               torch::nn::BatchNorm1d(4));
    init::default_(*want, 2);
    EXPECT_TRUE(torch::equal(model->parameters()[0], want->parameters()[0]));
    EXPECT_EQ(model->parameters()[2].sum().item<float>(), 8);
    EXPECT_EQ(model->buffers()[0].sum().item<float>(), 8);
    EXPECT_THAT(
        ThrownMessage([&] { broadcast_module(model, world_group(), 3); }),
        HasSubstr("src is 3"));
  });
}

TEST(Materialize, BroadcastAmongReplicasOfShards) {
  RunRanks(4, [] {
    init_process_group();
    const DeviceMesh mesh =
        init_device_mesh("cpu", {2, 2}, {"replicate", "shard"});
    const int64_t replica = mesh.get_local_rank("replicate");
    Zoo model, want;
    fully_shard(model, {.mesh = mesh});
    const auto make = [](Zoo& zoo, int64_t seed) {
      init::default_(*zoo, static_cast<uint64_t>(seed));
      for (const Tensor& buffer : zoo->buffers()) buffer.fill_(10 + seed);
    };
    make(model, replica);
    make(want, 1);
    for (const ProcessGroup& group : {world_group(), mesh.get_group("shard")}) {
      EXPECT_THAT(ThrownMessage([&] { broadcast_module(model, group); }),
                  AllOf(HasSubstr("different parts of 'linear.weight'"),
                        HasSubstr("replicate axis")));
    }
    broadcast_module(model, mesh.get_group("replicate"), /*src=*/1);
    ExpectSame(*model, *want);
  });
}

}  // namespace
}  // namespace fsdp::testing
