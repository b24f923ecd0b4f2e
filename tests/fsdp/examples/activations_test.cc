// SPDX-License-Identifier: Apache-2.0
// Compares the activation bound that fsdp-config prints with the tensors that a
// real model's forward keeps for backward.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/randint.h"
#include "c10/core/Allocator.h"
#include "c10/util/ThreadLocalDebugInfo.h"
#include "config/explain/explain.h"
#include "config/model/train_config.h"
#include "fsdp/examples/train_llama/model.h"
#include "fsdp/forward.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/module/activation_offload.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"

namespace fsdp {
namespace {

constexpr int64_t kSequences = 2;
constexpr int64_t kSeqLen = 64;

// Bytes in live CPU tensors that this thread made.
class LiveBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t alloc_size, size_t, size_t,
                         c10::Device) override {
    bytes_ += alloc_size;
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

int64_t Measured(const llama::ModelOptions& options) {
  llama::Llama model(options);
  const at::Tensor tokens =
      at::randint(options.vocab_size, {kSequences, kSeqLen}, at::kLong);
  auto live = std::make_shared<LiveBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
  const at::Tensor loss = at::cross_entropy_loss(
      model(tokens).to(at::kFloat).flatten(0, 1), tokens.flatten());
  EXPECT_TRUE(loss.requires_grad());
  return live->bytes();
}

// Bytes that a sharded model's offload copies. Collective.
int64_t MeasuredOffload(const llama::ModelOptions& options) {
  llama::Llama model(options);
  fully_shard(model);
  const at::Tensor tokens =
      at::randint(options.vocab_size, {kSequences, kSeqLen}, at::kLong);
  const ActivationOffload offload;
  const at::Tensor loss = at::cross_entropy_loss(
      forward(model, tokens).to(at::kFloat).flatten(0, 1), tokens.flatten());
  EXPECT_TRUE(loss.requires_grad());
  return static_cast<int64_t>(offload.num_saved_bytes());
}

MemoryPlan Bound(const llama::ModelOptions& options,
                 const TrainConfig& config = {}) {
  const llama::Llama model(options);
  ExplainOptions explained = {.local_batch_size = kSequences,
                              .seq_len = kSeqLen};
  for (const auto& item : model->named_parameters()) {
    explained.parameters.push_back({item.key(), item.value().sizes().vec()});
  }
  const absl::StatusOr<Explanation> result = explain(config, explained);
  EXPECT_TRUE(result.ok()) << result.status();
  return result->memory;
}

llama::ModelOptions Llama(int64_t num_layers) {
  return {.vocab_size = 512,
          .dim = 128,
          .num_layers = num_layers,
          .num_heads = 4,
          .num_kv_heads = 4,
          .ffn_dim = 352};
}

TEST(ActivationsBound, HoldsForALlamaAndIsClose) {
  for (const int64_t num_layers : {1, 6}) {
    const int64_t measured = Measured(Llama(num_layers));
    const auto bound =
        static_cast<int64_t>(Bound(Llama(num_layers)).activations);
    EXPECT_LE(measured, bound) << num_layers << " layers";
    EXPECT_GE(2 * measured, bound) << num_layers << " layers";
  }
}

TEST(ActivationsBound, HoldsForTheBytesOfAnOffload) {
  testing::RunRanks(1, [] {
    init_process_group();
    TrainConfig config;
    config.sharding.activation_cpu_offload = true;
    for (const int64_t num_layers : {1, 6}) {
      const int64_t measured = MeasuredOffload(Llama(num_layers));
      const auto bound = static_cast<int64_t>(
          Bound(Llama(num_layers), config).activations_on_host);
      EXPECT_LE(measured, bound) << num_layers << " layers";
      EXPECT_GE(2 * measured, bound) << num_layers << " layers";
    }
  });
}

}  // namespace
}  // namespace fsdp
