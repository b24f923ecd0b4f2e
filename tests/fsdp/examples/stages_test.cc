// SPDX-License-Identifier: Apache-2.0
// The batch runner, with stages and without, against one process. In this Llama
// no operator gathers, on any stage.
#include "fsdp/examples/train_llama/stages.h"

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fsdp/examples/train_llama/flags.h"
#include "fsdp/examples/train_llama/model.h"
#include "fsdp/examples/train_llama/parallel.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/mesh_collectives.h"
#include "fsdp/mesh/parallel_dims.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/parallel/activation.h"
#include "fsdp/parallel/experts/expert_parallel.h"
#include "fsdp/parallel/tensor/parallelize_module.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/parallel/llama.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "tests/testing/temp_dir.h"
#include "torch/types.h"

namespace llama {
namespace {

using ::dcp::testing::TempDir;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kBatch = 4;

Config ParseConfig(const std::vector<std::string>& flags) {
  std::vector<std::string> all = {"--data=a", absl::StrCat("--batch=", kBatch)};
  all.insert(all.end(), flags.begin(), flags.end());
  Config config = ParseFlags(all).value();
  const int64_t num_experts = config.model.num_experts;
  config.model = fsdp::testing::Options();
  config.model.num_experts = num_experts;
  config.accumulate = 1;
  return config;
}

Llama MakeModel(const Config& config) {
  torch::manual_seed(3);
  Llama model(config.model);
  InitWeights(model, config.model);
  return model;
}

// The batch's rows from `begin`.
Batch Rows(int64_t begin, int64_t num) {
  const torch::Tensor tokens =
      fsdp::testing::MakeTokens(0).narrow(0, begin, num).contiguous();
  const int64_t last = tokens.size(1) - 1;
  return {.tokens = tokens.narrow(1, 0, last).contiguous(),
          .targets = tokens.narrow(1, 1, last).contiguous()};
}

void ExpectTrainsAsOne(const std::vector<std::string>& flags) {
  SCOPED_TRACE(testing::PrintToString(flags));
  Config config = ParseConfig(flags);
  config.model.num_layers = 4;
  const fsdp::ParallelDims dims = fsdp::init_parallel_dims(
      ChooseDegrees(config, fsdp::get_world_size(), 1).value(), "cpu");
  const auto readers = dims.get_optional_mesh("batch");
  const int64_t num_readers = readers.has_value() ? readers->size() : 1;
  ASSERT_TRUE(FitMicrobatches(num_readers, &config).ok());

  Llama model = MakeModel(config);
  KeepStage(config, dims, model);
  CutLayers(config, dims, *model);
  const fsdp::FullyShardOptions options{.mesh = dims.fsdp_mesh()};
  for (const auto& block : *model->layers) {
    if (*config.train.mesh.expert_parallel_degree > 1)
      fsdp::fully_shard_experts(*block, dims);
    fsdp::fully_shard(block, options);
  }
  fsdp::fully_shard(model, options);

  const fsdp::StrictLayouts strict;
  const int64_t num_rows = kBatch / num_readers;
  const torch::Tensor loss =
      MakeBatchRunner(config, dims, model)(
          Rows(readers.has_value() ? readers->get_local_rank() * num_rows : 0,
               num_rows))
          .clone();
  EXPECT_THAT(fsdp::gathered_operators(), IsEmpty());
  fsdp::AllReduce(loss, fsdp::ReduceOp::kAvg, fsdp::world_group());

  Llama whole = MakeModel(config);
  Config alone = ParseConfig({});
  alone.model.num_layers = 4;
  const torch::Tensor expected =
      MakeBatchRunner(alone, dims, whole)(Rows(0, kBatch));
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-6);
  const auto gradients = whole->named_parameters();
  for (const auto& [name, parameter] : fsdp::named_parameters(*model)) {
    EXPECT_TRUE(torch::allclose(parameter.grad()->full_tensor(),
                                gradients[name].grad(), 1e-5, 1e-8))
        << name;
  }
}

TEST(Stages, TrainAsOneProcess) {
  fsdp::testing::RunRanks(4, [] {
    fsdp::testing::StartRankInDouble();
    ExpectTrainsAsOne({});
    ExpectTrainsAsOne({"--tp=2"});
    ExpectTrainsAsOne({"--pp=2"});
    ExpectTrainsAsOne({"--pp=2", "--microbatches=1", "--pp-schedule=gpipe"});
    ExpectTrainsAsOne({"--pp=2", "--tp=2", "--microbatches=4"});
    ExpectTrainsAsOne({"--pp=2", "--tp=2", "--sp"});
    ExpectTrainsAsOne(
        {"--pp=2", "--microbatches=2", "--pp-schedule=interleaved"});
    ExpectTrainsAsOne({"--pp=2", "--tp=2", "--sp", "--pp-schedule=zero-bubble",
                       "--pp-stages=1", "--microbatches=4"});
    ExpectTrainsAsOne({"--pp=2", "--microbatches=2", "--pp-schedule=zbv"});
    ExpectTrainsAsOne({"--pp=2", "--tp=2", "--pp-schedule=dualpipev"});
  });
}

TEST(Stages, WithExpertsTrainAsOneProcess) {
  fsdp::testing::RunRanks(4, [] {
    fsdp::testing::StartRankInDouble();
    ExpectTrainsAsOne({"--experts=4"});
    ExpectTrainsAsOne({"--experts=4", "--ep=2"});
    ExpectTrainsAsOne({"--experts=4", "--ep=4", "--tp=2", "--sp"});
    ExpectTrainsAsOne({"--experts=4", "--tp=2"});
    ExpectTrainsAsOne({"--experts=4", "--ep=2", "--pp=2"});
    ExpectTrainsAsOne({"--experts=4", "--ep=2", "--pp=2", "--tp=2", "--sp"});
  });
}

// Three and four axes at once: stages, replicas, shards, sequences, layers and
// experts.
TEST(Stages, OnEightRanksTrainAsOneProcess) {
  fsdp::testing::RunRanks(8, [] {
    fsdp::testing::StartRankInDouble();
    ExpectTrainsAsOne({"--pp=2", "--tp=2", "--sp"});
    ExpectTrainsAsOne({"--pp=2", "--replicate=2", "--shard=2",
                       "--microbatches=1", "--pp-schedule=gpipe"});
    ExpectTrainsAsOne({"--replicate=2", "--cp=2", "--tp=2"});
    ExpectTrainsAsOne({"--experts=4", "--ep=2", "--pp=2", "--tp=2", "--sp"});
    ExpectTrainsAsOne(
        {"--experts=4", "--ep=4", "--pp=2", "--replicate=1", "--tp=2"});
  });
}

// Names in a plan that only other stages have are not mistakes. Names that no
// stage has stay, so that parallelize_module warns about them.
TEST(Stages, UseTheirPartOfAPlan) {
  fsdp::testing::RunRanks(2, [] {
    fsdp::testing::StartRankInDouble();
    TempDir dir;
    Config config = ParseConfig({"--pp=2", "--tp=2"});
    config.plan = absl::StrCat(dir.path(), "/plan.yaml");
    std::ofstream(config.plan) << "embed_tokens: embedding_rowwise\n"
                                  "layers.0.mlp.up_proj: colwise\n"
                                  "layers.1.mlp.up_proj: colwise\n"
                                  "layers.*.mlp.down_proj: rowwise\n"
                                  "nrom: sequence_parallel\n"
                                  "lm_head: colwise\n";
    const fsdp::ParallelDims dims = fsdp::init_parallel_dims({.pp = 2}, "cpu");
    Llama model = MakeModel(config);
    KeepStage(config, dims, model);
    const fsdp::ParallelizePlan plan = ChoosePlan(config, *model);
    ASSERT_THAT(plan, SizeIs(4));
    const bool is_first = fsdp::get_rank() == 0;
    EXPECT_EQ(plan[0].first,
              is_first ? "embed_tokens" : "layers.1.mlp.up_proj");
    EXPECT_EQ(plan[3].first, is_first ? "nrom" : "lm_head");
  });
}

}  // namespace
}  // namespace llama
