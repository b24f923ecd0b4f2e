// SPDX-License-Identifier: Apache-2.0
// judged_configs_test.cc compares degrees, types, numbers and curves with
// torchtune itself; this tests the reader's other findings.
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "config/dialects/torchtune/torchtune.h"
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

Reading ReadTune(absl::string_view text) {
  return ReadWith(
      &ReadTorchtune, "run.yaml", Syntax::kYaml,
      absl::StrCat("optimizer: {_component_: torch.optim.AdamW, lr: 1e-5}\n",
                   text));
}

TEST(Torchtune, ReadsBatchesAndFolders) {
  const Reading reading = ReadTune(
      "name: tune\noutput_dir: /runs/${name}\nbatch_size: 2\n"
      "gradient_accumulation_steps: 8\nseed: 7\nepochs: 2\n"
      "max_steps_per_epoch: 50\nsave_every_n_steps: 10\n"
      "enable_async_checkpointing: true\n"
      "tokenizer: {_component_: a.t, max_seq_len: 4096}\n"
      "checkpointer: {_component_: a.c, output_dir: '${output_dir}', "
      "keep_last_n_checkpoints: 2}\n");
  const TrainConfig& config = reading.config;
  EXPECT_THAT(reading.findings, Not(Contains(StartsWith("problem"))));
  EXPECT_EQ(**config.loop.local_batch_size, 2);
  EXPECT_EQ(**config.loop.gradient_accumulation_steps, 8);
  EXPECT_EQ(**config.loop.seq_len, 4096);
  EXPECT_EQ(**config.loop.seed, 7);
  EXPECT_EQ(**config.loop.steps, 100);
  EXPECT_EQ(*config.checkpoint.folder, "/runs/tune");
  EXPECT_EQ(*config.checkpoint.interval, 10);
  EXPECT_EQ(*config.checkpoint.keep_latest_k, 2);
  EXPECT_TRUE(*config.checkpoint.async);
  EXPECT_EQ(*config.checkpoint.state_dict_type,
            StateDictType::kShardedStateDict);
}

TEST(Torchtune, UsesTorchtuneDefaults) {
  const Reading reading = ReadTune("seed: null\nclip_grad_norm: null\n");
  EXPECT_THAT(reading.findings, IsEmpty());
  EXPECT_EQ(*reading.config.checkpoint.state_dict_type,
            StateDictType::kFullStateDict);
  EXPECT_EQ(*reading.config.loop.seed, std::nullopt);
  EXPECT_EQ(**reading.config.loop.max_norm, 0.0);
}

TEST(Torchtune, ReportsSettingsThatTorchtuneRefuses) {
  const auto expect = [](absl::string_view text, const char* problem) {
    EXPECT_THAT(ReadTune(text).findings, Contains(HasSubstr(problem))) << text;
  };
  expect("tensor_parallel_dim: 2\ntensor_parallel_plan: null\n",
         "tensor_parallel_dim is 2, which torchtune refuses without "
         "tensor_parallel_plan");
  expect("data_parallel_shard_dim: 1\ndata_parallel_replicate_dim: 2\n",
         "data_parallel_shard_dim is 1 with data_parallel_replicate_dim");
  expect("enable_activation_offloading: true\n",
         "enable_activation_offloading is true, which torchtune refuses "
         "without enable_activation_checkpointing: true");
  expect("dtype: fp16\n", "dtype is fp16, which torchtune refuses");
  expect("enable_fp8_training: true\n", "nothing computes in float8 here");
  expect("fsdp_sharding_strategy: FULL_SHARD\n",
         "fsdp_sharding_strategy is not known, and asks for sharding");
  expect("lr_scheduler: {_component_: torch.optim.lr_scheduler.StepLR}\n",
         "lr_scheduler._component_ is torch.optim.lr_scheduler.StepLR, not");
  expect(
      "lr_scheduler: {_component_: a.get_cosine_schedule_with_warmup, "
      "num_warmup_steps: 1, num_cycles: 2}\n",
      "lr_scheduler.num_cycles is not 0.5");
}

TEST(Torchtune, RefusesOtherOptimizers) {
  const auto read = [](absl::string_view optimizer) {
    return ReadWith(&ReadTorchtune, "run.yaml", Syntax::kYaml,
                    absl::StrCat("optimizer: {_component_: ", optimizer, "}"));
  };
  EXPECT_THAT(read("torch.optim.SGD, lr: 1").findings,
              ElementsAre(HasSubstr("optimizer._component_ is torch.optim.SGD, "
                                    "but the optimizer here is AdamW")));
  EXPECT_THAT(read("bitsandbytes.optim.PagedAdamW8bit, lr: 1").findings,
              ElementsAre(HasSubstr("is read as AdamW")));
  const Reading adam = read("torch.optim.Adam, lr: 1");
  EXPECT_THAT(adam.findings, IsEmpty());
  EXPECT_EQ(**adam.config.loop.weight_decay, 0.0);
  EXPECT_THAT(read("torch.optim.Adam, weight_decay: 0.1").findings,
              ElementsAre(HasSubstr("is torch.optim.Adam with weight decay")));
}

TEST(Torchtune, CheckpointingModeWorksWithoutTheSwitch) {
  const auto every = [](absl::string_view text) {
    return *ReadTune(text).config.sharding.activation_checkpointing;
  };
  EXPECT_EQ(every("ac_mode: full\n"), 1);
  EXPECT_EQ(every("ac_mode: selective\nac_option: 2\n"), 2);
  EXPECT_EQ(every("ac_mode: selective\nac_option: op\n"), 1);
  EXPECT_EQ(every("ac_mode: none\n"), 0);
  EXPECT_EQ(every("enable_activation_checkpointing: true\nac_mode: full\n"), 0);
  EXPECT_THAT(ReadTune("enable_activation_checkpointing: true\nac_mode: full\n")
                  .findings,
              ElementsAre(HasSubstr(
                  "ac_mode computes nothing again, as in torchtune")));
}

TEST(Torchtune, ReportsWhySettingsHaveNoEffect) {
  const Reading reading = ReadTune(
      "model: {_component_: torchtune.models.llama3.lora_llama3_8b}\n"
      "fsdp: {cpu_offload: true}\noptimizer_in_bwd: true\n"
      "custom_sharded_layers: [tok_embeddings]\nepochs: 2\nshuffle: true\n"
      "tensor_parallel_plan: {_component_: a.plan}\n");
  EXPECT_THAT(reading.findings,
              Contains(HasSubstr("model has no effect: the program makes")));
  EXPECT_THAT(reading.findings,
              Contains(HasSubstr("fsdp has no effect: torchtune reads "
                                 "fsdp_cpu_offload instead")));
  EXPECT_THAT(reading.findings,
              Contains(HasSubstr("optimizer_in_bwd has no effect")));
  EXPECT_THAT(reading.findings,
              Contains(HasSubstr("custom_sharded_layers has no effect")));
  EXPECT_THAT(reading.findings,
              Contains(HasSubstr("tensor_parallel_plan has no effect")));
  EXPECT_THAT(reading.findings,
              Contains(HasSubstr("epochs is read as a save after the last")));
  EXPECT_THAT(reading.findings,
              Contains(HasSubstr("without effect here (shuffle)")));
  EXPECT_FALSE(*reading.config.sharding.cpu_offload);
}

}  // namespace
}  // namespace fsdp::config
