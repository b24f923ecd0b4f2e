// SPDX-License-Identifier: Apache-2.0
// judged_configs_test.cc compares degrees, types, numbers and curves with
// prime-rl itself; this tests the reader's other findings.
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "config/dialects/prime_rl/prime_rl.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/config/reading.h"

namespace fsdp::config {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

Reading ReadRun(absl::string_view text) {
  return ReadWith(&ReadPrimeRl, "run.toml", Syntax::kToml, text);
}

TEST(PrimeRl, ReadsBatchesAndFolders) {
  const Reading reading = ReadRun(
      "max_steps = 100\noutput_dir = 'runs/a'\n[data]\nbatch_size = 32\n"
      "micro_batch_size = 2\nseq_len = 4096\n[ckpt]\ninterval = 10\n"
      "keep_last = 2\n[deployment]\nnum_train_gpus = 4\nnum_infer_gpus = 2\n");
  const TrainConfig& config = reading.config;
  EXPECT_EQ(**config.loop.steps, 100);
  EXPECT_EQ(**config.loop.global_batch_size, 32);
  EXPECT_EQ(**config.loop.local_batch_size, 2);
  EXPECT_EQ(**config.loop.seq_len, 4096);
  EXPECT_EQ(*config.checkpoint.folder, "runs/a/checkpoints");
  EXPECT_EQ(*config.checkpoint.interval, 10);
  EXPECT_EQ(*config.checkpoint.keep_latest_k, 2);
  EXPECT_EQ(*config.mesh.num_processes, 4);
  EXPECT_THAT(reading.findings, IsEmpty());
}

TEST(PrimeRl, SavesNothingWithoutCkpt) {
  EXPECT_EQ(*ReadRun("max_steps = 10\n").config.checkpoint.folder, "");
  EXPECT_EQ(*ReadRun("[ckpt]\n").config.checkpoint.folder,
            "outputs/checkpoints");
}

TEST(PrimeRl, ReadsTheTrainerSection) {
  const Reading reading = ReadRun(
      "max_steps = 100\nseq_len = 8192\n[model]\nname = 'm'\n"
      "[trainer.model]\ncp = 2\nep = 8\nac = { freq = 2 }\n"
      "[trainer.optim]\nlr = 3e-6\n[orchestrator]\nbatch_size = 8\n"
      "[inference.vllm]\ntensor_parallel_size = 2\n"
      "[deployment]\ntype = 'multi_node'\nnum_train_nodes = 4\n"
      "nodes_per_fsdp_group = 2\n");
  const TrainConfig& config = reading.config;
  EXPECT_THAT(reading.findings, Not(Contains(StartsWith("problem"))));
  EXPECT_EQ(*config.mesh.context_parallel_degree, 2);
  EXPECT_EQ(*config.mesh.expert_parallel_degree, 8);
  EXPECT_EQ(*config.mesh.data_parallel_replicate_degree, 2);
  EXPECT_EQ(*config.mesh.num_processes, 32);
  EXPECT_EQ(*config.sharding.activation_checkpointing, 2);
  EXPECT_EQ(**config.loop.seq_len, 8192);
  EXPECT_EQ(*config.loop.global_batch_size, std::nullopt);
  EXPECT_EQ(**config.loop.lr, 3e-6);
}

TEST(PrimeRl, ReportsUnsupportedSettings) {
  const auto expect = [](absl::string_view text, const char* problem) {
    EXPECT_THAT(ReadRun(text).findings, Contains(HasSubstr(problem))) << text;
  };
  expect("[optim]\ntype = 'muon'\n", "but the optimizer here is AdamW");
  expect("[model.quantization]\ntype = 'fp8'\n",
         "nothing computes in float8 here");
  expect("[scheduler]\ntype = 'cosine'\n",
         "scheduler needs max_steps, which the file lacks");
  expect("max_steps = 10\n[scheduler]\ntype = 'linear'\n",
         "has more steps of warmup and decay than max_steps, 10");
  expect("[model]\nfsdp_cpu_offload = true\nfull_offload = true\n",
         "model.full_offload is given together with fsdp_cpu_offload");
  expect(
      "[deployment]\ntype = 'multi_node'\nnum_train_nodes = 3\n"
      "nodes_per_fsdp_group = 2\n",
      "is 2, which does not divide num_train_nodes, 3");
}

TEST(PrimeRl, ReportsSettingsReadDifferently) {
  EXPECT_THAT(ReadRun("[model]\nep = 'auto'\n").findings,
              ElementsAre(HasSubstr("model.ep is read as 1")));
  EXPECT_THAT(
      ReadRun("[model.ac]\nmode = 'selective'\ntargets = ['norm']\n").findings,
      ElementsAre(HasSubstr("model.ac.mode is read as full")));
  EXPECT_THAT(ReadRun("[model.lora]\nrank = 8\n").findings,
              ElementsAre(HasSubstr("model.lora has no effect")));
  const Reading offloaded = ReadRun("[model]\nfull_offload = true\n");
  EXPECT_THAT(offloaded.findings,
              ElementsAre(HasSubstr("model.full_offload has no effect")));
  // prime-rl does not bound gradients then.
  EXPECT_EQ(**offloaded.config.loop.max_norm, 0.0);
}

}  // namespace
}  // namespace fsdp::config
