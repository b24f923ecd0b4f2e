// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/context/context_parallel.h"

#include <string>

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

constexpr const char* kMethods[] = {"allgather", "alltoall", "ulysses"};

Prepare Cut(const DeviceMesh& cp, bool load_balance,
            const std::string& method) {
  return [=](torch::Tensor& inputs, torch::Tensor& targets) {
    context_parallel(cp, {&inputs, &targets},
                     {.load_balance = load_balance, .method = method});
  };
}

TEST(ContextParallel, TrainsAsOneProcess) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh cp = init_device_mesh("cpu", {2}, {"cp"});
    for (const char* method : kMethods) {
      for (const bool load_balance : {false, true}) {
        ExpectTrainsAsOne(MakeLlama(), MakeLlama(), 0, 4, /*seq_len=*/8,
                          Cut(cp, load_balance, method));
      }
      ExpectTrainsAsOne(MakeLlama(), MakeLlama(), 0, 4, /*seq_len=*/7,
                        Cut(cp, /*load_balance=*/false, method));
    }
  });
}

// fully_shard sums the gradients in the same reduction.
TEST(ContextParallel, IsReducedByFullyShard) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "cp"});
    const DeviceMesh both = mesh.flatten("dp_cp");
    for (const char* method : kMethods) {
      llama::Llama model = MakeLlama();
      for (const auto& block : *model->layers) {
        fully_shard(block, {.mesh = both});
      }
      fully_shard(model, {.mesh = both});
      ExpectTrainsAsOne(model, MakeLlama(), 2 * mesh.get_local_rank("dp"), 2,
                        /*seq_len=*/8,
                        Cut(mesh["cp"], /*load_balance=*/true, method));
    }
  });
}

TEST(ContextParallel, ComposesWithTensorParallelism) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"cp", "tp"});
    // Each rank of "tp" has two heads of queries, and those of keys must be as
    // many for "cp" to divide them.
    llama::ModelOptions options = Options();
    options.num_kv_heads = options.num_heads;
    const auto make = [&options] {
      torch::manual_seed(3);
      llama::Llama model(options);
      llama::InitWeights(model, options);
      return model;
    };
    for (const char* method : kMethods) {
      for (const ParallelizePlan& plan : {TensorPlan(), SequencePlan()}) {
        llama::Llama model = make();
        parallelize_module(model, mesh["tp"], plan);
        fully_shard(model, {.mesh = mesh["cp"]});
        ExpectTrainsAsOne(model, make(), 0, 4, /*seq_len=*/8,
                          Cut(mesh["cp"], /*load_balance=*/true, method));
      }
    }
    llama::Llama grouped = MakeLlama();
    parallelize_module(grouped, mesh["tp"], TensorPlan());
    EXPECT_THAT(ThrownMessage([&] {
                  ComputeLoss(grouped, MakeTokens(0),
                              Cut(mesh["cp"], true, "ulysses"));
                }),
                HasSubstr("divides the 1 heads of keys among 2 ranks"));
    ExpectTrainsAsOne(grouped, MakeLlama(), 0, 4, /*seq_len=*/8,
                      Cut(mesh["cp"], /*load_balance=*/true, "alltoall"));
  });
}

// Ranks have unequal numbers of tokens that count, one of them none.
TEST(ContextParallel, LossIsTheMeanOverValidTokensOfAllRanks) {
  RunRanks(3, [] {
    StartRankInDouble();
    const DeviceMesh cp = init_device_mesh("cpu", {3}, {"cp"});
    const torch::Tensor tokens = MakeTokens(0, /*seq_len=*/12);
    const auto ignore_some = [](torch::Tensor& targets) {
      targets = targets.masked_fill(torch::arange(12).ge(5), -100);
    };
    llama::Llama whole = MakeLlama();
    const torch::Tensor expected = ComputeLoss(
        whole, tokens, [&](torch::Tensor& /*inputs*/, torch::Tensor& targets) {
          ignore_some(targets);
        });
    expected.backward();
    for (const char* method : {"allgather", "alltoall"}) {
      llama::Llama model = MakeLlama();
      const torch::Tensor loss = ComputeLoss(
          model, tokens, [&](torch::Tensor& inputs, torch::Tensor& targets) {
            ignore_some(targets);
            Cut(cp, /*load_balance=*/false, method)(inputs, targets);
          });
      loss.backward();
      EXPECT_NEAR(full_tensor(loss).item<double>(), expected.item<double>(),
                  1e-12);
      for (const auto& item : whole->named_parameters()) {
        EXPECT_TRUE(
            torch::allclose(model->named_parameters()[item.key()].grad(),
                            item.value().grad(), 1e-10, 1e-13))
            << item.key() << " with " << method;
      }
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
