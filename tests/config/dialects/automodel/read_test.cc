// SPDX-License-Identifier: Apache-2.0
// judged_configs_test.cc compares degrees, types, numbers and curves with NeMo
// Automodel itself; this tests the reader's other findings.
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "config/dialects/automodel/automodel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/config/reading.h"

namespace fsdp::config {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Reading ReadRecipe(absl::string_view text) {
  return ReadWith(
      &ReadAutomodel, "run.yaml", Syntax::kYaml,
      absl::StrCat("optimizer: {_target_: torch.optim.AdamW, lr: 1e-5}\n",
                   text));
}

TEST(Automodel, ReadsBatchesAndFolders) {
  const Reading reading = ReadRecipe(
      "seed: 7\nrng: {seed: 1111}\nmodel: {torch_dtype: bf16}\n"
      "step_scheduler: {global_batch_size: 64, local_batch_size: 8, "
      "max_steps: 30, ckpt_every_steps: 10}\n"
      "checkpoint: {checkpoint_dir: c/, is_async: true, "
      "max_recent_checkpoints: 2}\n");
  const TrainConfig& config = reading.config;
  EXPECT_THAT(reading.findings, IsEmpty());
  EXPECT_EQ(**config.loop.seed, 7);
  EXPECT_EQ(**config.loop.global_batch_size, 64);
  EXPECT_EQ(**config.loop.local_batch_size, 8);
  EXPECT_EQ(**config.loop.steps, 30);
  EXPECT_EQ(*config.checkpoint.folder, "c/");
  EXPECT_EQ(*config.checkpoint.interval, 10);
  EXPECT_EQ(*config.checkpoint.keep_latest_k, 2);
  EXPECT_TRUE(*config.checkpoint.async);
  // Parameters in bfloat16 need no cast to it.
  EXPECT_EQ(*config.precision.param_dtype, std::nullopt);
}

TEST(Automodel, UsesAutomodelDefaults) {
  const TrainConfig config =
      ReadRecipe("checkpoint: {model_save_format: safetensors}\n").config;
  EXPECT_EQ(*config.checkpoint.folder, "checkpoints/");
  EXPECT_EQ(*config.checkpoint.interval, 100);
  EXPECT_EQ(**config.loop.seed, 42);
  EXPECT_EQ(**config.loop.global_batch_size, 32);
  EXPECT_EQ(
      *ReadRecipe("checkpoint: {enabled: false}\n").config.checkpoint.folder,
      "");
}

TEST(Automodel, ReportsUnsupportedSettings) {
  const auto expect = [](absl::string_view text, const char* problem) {
    EXPECT_THAT(ReadRecipe(text).findings, Contains(HasSubstr(problem)))
        << text;
  };
  expect("distributed: {strategy: megatron_fsdp}\n",
         "distributed.strategy is 'megatron_fsdp', which is not supported");
  expect("distributed: {strategy: deepspeed}\n",
         "distributed.strategy is 'deepspeed', not fsdp2 or ddp");
  expect("distributed: {strategy: ddp, cp_size: 2}\n",
         "distributed.cp_size is 2, which NeMo Automodel refuses for ddp");
  expect("distributed: {dp_size: 8, dp_replicate_size: 3}\n",
         "dp_replicate_size is 3, not a smaller divisor of dp_size, 8");
  expect("distributed: {pp_size: 2}\n", "has no distributed.pipeline");
  expect("distributed: {dp_replicat_size: 2}\n",
         "did you mean dp_replicate_size?");
  expect("fp8: {enabled: true}\n", "nothing computes in float8 here");
  expect("lr_scheduler: {lr_decay_style: WSD, lr_warmup_steps: 1}\n",
         "lr_scheduler.lr_decay_style is 'WSD', not cosine, linear or "
         "constant");
  expect("lr_scheduler: {min_lr: 1}\n", "more than the learning rate");
}

TEST(Automodel, ReadsOptimizersAsAdamW) {
  const auto read = [](absl::string_view optimizer) {
    return ReadWith(&ReadAutomodel, "run.yaml", Syntax::kYaml,
                    absl::StrCat("optimizer: {_target_: ", optimizer, "}"));
  };
  const Reading fused = read(
      "transformer_engine.pytorch.optimizers.fused_adam.FusedAdam, lr: 1, "
      "weight_decay: 0.1, adam_w_mode: true, master_weights: true");
  EXPECT_THAT(fused.findings,
              ElementsAre(HasSubstr("without effect here (master_weights)")));
  EXPECT_EQ(**fused.config.loop.weight_decay, 0.1);
  EXPECT_THAT(
      read("a.FusedAdam, weight_decay: 0.1, adam_w_mode: false").findings,
      ElementsAre(HasSubstr("is a.FusedAdam with weight decay")));
  EXPECT_THAT(read("flashoptim.FlashAdamW, lr: 1").findings,
              ElementsAre(HasSubstr("is read as AdamW")));
  EXPECT_THAT(read("dion.Muon, lr: 1").findings,
              ElementsAre(HasSubstr("but the optimizer here is AdamW")));
}

TEST(Automodel, ReportsSettingsReadDifferently) {
  EXPECT_THAT(ReadRecipe("distributed: {strategy: ddp}\n").findings,
              ElementsAre(HasSubstr("is ddp, and is read as "
                                    "data_parallel_shard_degree: 1")));
  EXPECT_THAT(
      ReadRecipe("model: {_target_: a.from_pretrained}\n").findings,
      ElementsAre(HasSubstr("without effect here (_target_)"),
                  HasSubstr("model leaves parameters in the type of the "
                            "checkpoint, which is read as bfloat16")));
  EXPECT_THAT(ReadRecipe("distributed: {activation_checkpointing: selective}\n")
                  .findings,
              ElementsAre(HasSubstr("is read as full")));
  EXPECT_THAT(ReadRecipe("lr_scheduler: {lr_decay_style: cosine}\n").findings,
              ElementsAre(HasSubstr("a tenth of all steps, in NeMo Automodel "
                                    "of at most 1000")));
  EXPECT_THAT(ReadRecipe("peft: {dim: 8}\n").findings,
              ElementsAre(HasSubstr("peft has no effect: the program makes")));
}

}  // namespace
}  // namespace fsdp::config
