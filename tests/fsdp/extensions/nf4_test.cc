// SPDX-License-Identifier: Apache-2.0
// QLoRA's base model: frozen weights that are in four bits between uses.

#include "fsdp/extensions/nf4.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state_dict.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/module/materialize.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/mlp.h"
#include "tests/fsdp/module_snapshot.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "torch/optim/sgd.h"

namespace fsdp::testing {
namespace {

FullyShardOptions StoredInNf4(const DeviceMesh& mesh) {
  FullyShardOptions options;
  options.mesh = mesh;
  options.reshard_after_forward = true;
  options.all_gather_extension_fn =
      [](const std::string& name,
         const at::Tensor& parameter) -> std::optional<AllGatherExtension> {
    if (name.find("weight") == std::string::npos) return std::nullopt;
    return nf4_storage(parameter);
  };
  return options;
}

// Biases train; weights are frozen and, in the reference, rounded.
Mlp FrozenMlp(bool is_rounded) {
  Mlp model;
  for (const at::Tensor& weight : {model->up->weight, model->down->weight}) {
    weight.requires_grad_(false);
    if (!is_rounded) continue;
    weight.copy_(unpack_nf4(pack_nf4(weight), weight.sizes(), at::kFloat));
  }
  return model;
}

// Bytes that the registry holds, counting each storage once.
size_t StoredBytes(const torch::nn::Module& module) {
  std::map<const void*, size_t> storages;
  for (const at::Tensor& shard : module.parameters()) {
    storages[shard.storage().unsafeGetStorageImpl()] = shard.storage().nbytes();
  }
  size_t bytes = 0;
  for (const auto& [storage, nbytes] : storages) bytes += nbytes;
  return bytes;
}

void CheckStoredTraining(int world_size) {
  RunRanks(world_size, [&] {
    init_process_group();
    const int64_t world = get_world_size();
    const DeviceMesh mesh = init_device_mesh("cpu", {world});
    Mlp reference = FrozenMlp(true), model = FrozenMlp(false);
    fully_shard(model->up, StoredInNf4(mesh));
    fully_shard(model, StoredInNf4(mesh));
    // 2010 and 335 elements are 32 and 6 blocks; biases have 67 and 5.
    const auto rows = [&](int64_t all) { return (all + world - 1) / world; };
    const auto most = static_cast<size_t>(36 * (rows(32) + rows(6)) +
                                          4 * (rows(67) + rows(5)) + 4 * 16);
    EXPECT_LE(StoredBytes(*model), most);
    const std::vector<double> losses = TrainSharded(model, 4);
    EXPECT_LE(StoredBytes(*model), most);
    // Between uses the member has no memory.
    EXPECT_THROW(model->up->weight.data_ptr(), c10::Error);
    torch::optim::SGD optimizer(reference->parameters(),
                                torch::optim::SGDOptions(0.5));
    for (int64_t step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      const at::Tensor loss = reference->forward(BatchOf(step)).square().mean();
      loss.backward();
      optimizer.step();
      EXPECT_NEAR(losses[static_cast<size_t>(step)], loss.item<double>(), 1e-5)
          << step;
    }
    EXPECT_LT(losses.back(), losses.front());
    // The tensor that a checkpoint gets.
    const DTensor blocks = *dtensor_of(model->named_parameters()["up.weight"]);
    EXPECT_TRUE(
        blocks.full_tensor().equal(pack_nf4(FrozenMlp(false)->up->weight)));
  });
}

TEST(Nf4Storage, TrainsTheOtherParameters) { CheckStoredTraining(3); }
TEST(Nf4Storage, UsesFourBitsOnOneRankToo) { CheckStoredTraining(1); }

TEST(Nf4Storage, GathersBlocksAndComputesInTheParamDtype) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    CountingBackend& counts = Count(mesh.get_group());
    Mlp model = FrozenMlp(false);
    FullyShardOptions options = StoredInNf4(mesh);
    options.mp_policy.param_dtype = at::kBFloat16;
    fully_shard(model, options);
    counts.Reset();
    const at::Tensor out = model->forward(BatchOf(0));
    EXPECT_EQ(out.scalar_type(), at::kBFloat16);
    const int64_t bytes = 36 * (16 + 3) + 2 * (34 + 3);
    EXPECT_GE(counts.bytes("all_gather"), bytes);
    EXPECT_LE(counts.bytes("all_gather"), bytes + 64);
    Mlp rounded = FrozenMlp(true);
    rounded->to(at::kBFloat16);
    EXPECT_TRUE(out.equal(rounded->forward(BatchOf(0).to(at::kBFloat16))));
    // Only the device may change.
    get_fsdp_module(*model).reshard();
    model->to(at::kHalf);
    ExpectError<c10::Error>([&] { model->forward(BatchOf(0)); },
                            {"'up.weight' became Half"});
  });
}

// The blocks load into a model that has only shapes, and onto fewer shards.
TEST(Nf4Storage, BlocksLoadOnAnyNumberOfRanks) {
  RunRanks(4, [] {
    init_process_group();
    Mlp saved = FrozenMlp(false);
    fully_shard(saved, StoredInNf4(init_device_mesh("cpu", {4})));
    const DeviceMesh mesh =
        init_device_mesh("cpu", {2, 2}, {"replicate", "shard"});
    Mlp model{nullptr};
    {
      const MetaDeviceGuard on_meta;
      model = Mlp();
    }
    model->up->weight.requires_grad_(false);
    model->down->weight.requires_grad_(false);
    fully_shard(model, StoredInNf4(mesh));
    fsdp::to_empty(model, c10::kCPU);
    const std::string path = SharedDir() + "/step";
    ASSERT_OK(fsdp::save(*fsdp::get_model_state_dict(*saved), path));
    fsdp::StateDict state = *fsdp::get_model_state_dict(*model);
    ASSERT_OK(fsdp::load(state, path));
    EXPECT_TRUE(
        model->forward(BatchOf(0)).equal(FrozenMlp(true)->forward(BatchOf(0))));
  });
}

TEST(Nf4Storage, RefusesUnsupportedParametersByName) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    ExpectError<c10::ValueError>([&] { fully_shard(Mlp(), StoredInNf4(mesh)); },
                                 {"requires grad"});
    FullyShardOptions options = StoredInNf4(mesh);
    options.reshard_after_forward = 2;
    Mlp model = FrozenMlp(false);
    ExpectError<c10::NotImplementedError>([&] { fully_shard(model, options); },
                                          {"'up.weight'", "number of ranks"});
    fully_shard(model, StoredInNf4(mesh));
    model->up->weight.requires_grad_(true);
    ExpectError<c10::Error>([&] { model->forward(BatchOf(0)); },
                            {"'up.weight' was unfrozen"});
  });
}

}  // namespace
}  // namespace fsdp::testing
