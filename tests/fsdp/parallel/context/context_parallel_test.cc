// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/context/context_parallel.h"

#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/parallel/activation.h"
#include "fsdp/parallel/tensor/parallelize_module.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/parallel/llama.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::HasSubstr;

Prepare Cut(const DeviceMesh& cp, bool load_balance) {
  return [cp, load_balance](torch::Tensor& inputs, torch::Tensor& targets) {
    context_parallel(cp, {&inputs, &targets}, {.load_balance = load_balance});
  };
}

TEST(ContextParallel, TrainsAsOneProcess) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh cp = init_device_mesh("cpu", {2}, {"cp"});
    for (const bool load_balance : {false, true}) {
      ExpectTrainsAsOne(MakeLlama(), MakeLlama(), 0, 4, /*seq_len=*/8,
                        Cut(cp, load_balance));
    }
    ExpectTrainsAsOne(MakeLlama(), MakeLlama(), 0, 4, /*seq_len=*/7,
                      Cut(cp, /*load_balance=*/false));
  });
}

// fully_shard sums the gradients in the same reduction.
TEST(ContextParallel, IsReducedByFullyShard) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "cp"});
    const DeviceMesh both = mesh.flatten("dp_cp");
    llama::Llama model = MakeLlama();
    for (const auto& block : *model->layers) fully_shard(block, {.mesh = both});
    fully_shard(model, {.mesh = both});
    ExpectTrainsAsOne(model, MakeLlama(), 2 * mesh.get_local_rank("dp"), 2,
                      /*seq_len=*/8, Cut(mesh["cp"], /*load_balance=*/true));
  });
}

TEST(ContextParallel, ComposesWithTensorParallelism) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"cp", "tp"});
    for (const ParallelizePlan& plan : {TensorPlan(), SequencePlan()}) {
      llama::Llama model = MakeLlama();
      parallelize_module(model, mesh["tp"], plan);
      fully_shard(model, {.mesh = mesh["cp"]});
      ExpectTrainsAsOne(model, MakeLlama(), 0, 4, /*seq_len=*/8,
                        Cut(mesh["cp"], /*load_balance=*/true));
    }
  });
}

TEST(ContextParallel, DealsTheSequenceEvenly) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh cp = init_device_mesh("cpu", {4}, {"cp"});
    const torch::Tensor whole = torch::arange(16).unsqueeze(0);
    torch::Tensor sequence = whole;
    context_parallel(cp, {&sequence});
    // As PyTorch's head-tail balancing deals 16 tokens to 4 ranks.
    const int64_t expected[4][4] = {
        {0, 1, 14, 15}, {2, 3, 12, 13}, {4, 5, 10, 11}, {6, 7, 8, 9}};
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(to_local(sequence)[0][i].item<int64_t>(),
                expected[get_rank()][i]);
    }
    EXPECT_TRUE(torch::equal(full_tensor(sequence), whole));
    torch::Tensor odd = torch::arange(12).unsqueeze(0);
    EXPECT_THAT(ThrownMessage([&] { context_parallel(cp, {&odd}); }),
                HasSubstr("a sequence of 12 cannot be balanced over 4 ranks; "
                          "its length must be a multiple of 8"));
    EXPECT_TRUE(layout_of(odd).empty());
  });
}

}  // namespace
}  // namespace fsdp::testing
