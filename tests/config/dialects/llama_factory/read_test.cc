// SPDX-License-Identifier: Apache-2.0
// judged_configs_test.cc compares degrees, types and numbers with LLaMA-Factory
// itself; this tests the reader's other findings.
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "config/dialects/llama_factory/llama_factory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/config/reading.h"

namespace fsdp::config {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Reading ReadArguments(absl::string_view text) {
  return ReadWith(&ReadLlamaFactory, "run.yaml", Syntax::kYaml,
                  absl::StrCat("dist_config: {name: fsdp2}\n", text));
}

TEST(LlamaFactory, ReadsBatchesAndFolders) {
  const Reading reading = ReadWith(
      &ReadLlamaFactory, "run.yaml", Syntax::kYaml,
      "model: a/b\nmodel_class: llm\noutput_dir: o\nmicro_batch_size: 2\n"
      "global_batch_size: 64\ncutoff_len: 4096\nmax_steps: 10\nseed: 7\n"
      "save_steps: 5\nsave_total_limit: 2\n"
      "dist_config: {name: fsdp2, dcp_path: w}\n");
  const TrainConfig& config = reading.config;
  EXPECT_THAT(reading.findings,
              ElementsAre(HasSubstr("without effect here (model, model_class)"),
                          HasSubstr("leaves parameters in the type of the "
                                    "checkpoint, which is read as bfloat16")));
  EXPECT_EQ(**config.loop.local_batch_size, 2);
  EXPECT_EQ(**config.loop.global_batch_size, 64);
  EXPECT_EQ(**config.loop.seq_len, 4096);
  EXPECT_EQ(**config.loop.steps, 10);
  EXPECT_EQ(**config.loop.seed, 7);
  EXPECT_EQ(*config.checkpoint.folder, "o");
  EXPECT_EQ(*config.checkpoint.interval, 5);
  EXPECT_EQ(*config.checkpoint.keep_latest_k, 2);
  EXPECT_EQ(*config.checkpoint.initial_load_path, "w");
}

TEST(LlamaFactory, TrainsCopiesWithoutDistConfig) {
  const Reading reading =
      ReadWith(&ReadLlamaFactory, "run.yaml", Syntax::kYaml, "cp_size: 2\n");
  EXPECT_THAT(reading.findings,
              Contains(HasSubstr("has no dist_config, and is read as "
                                 "data_parallel_shard_degree: 1")));
  EXPECT_THAT(reading.findings,
              Contains(StartsWith("problem run.yaml:1: cp_size is 2, but ranks "
                                  "share sequences only with dist_config")));
}

TEST(LlamaFactory, ReportsUnsupportedSettings) {
  const auto expect = [](absl::string_view text, const char* problem) {
    EXPECT_THAT(ReadArguments(text).findings, Contains(HasSubstr(problem)))
        << text;
  };
  expect("optim_config: {name: muon}\n",
         "optim_config.name is muon, but the optimizer here is AdamW");
  expect("lr_scheduler_config: {name: cosine}\n",
         "lr_scheduler_config is a map, which is not supported");
  expect("mp_shard_size: 4\ncp_size: 3\n",
         "cp_size is 3, which does not divide mp_shard_size, 4");
  EXPECT_THAT(
      ReadWith(&ReadLlamaFactory, "run.yaml", Syntax::kYaml,
               "dist_config: {name: deepspeed, config_file: z3.json}\n")
          .findings,
      Contains(HasSubstr("dist_config.name is 'deepspeed', which is not "
                         "supported: there is no DeepSpeed here")));
  EXPECT_THAT(ReadWith(&ReadLlamaFactory, "run.yaml", Syntax::kYaml,
                       "dist_config: {name: fsdp2, offload_param: true}\n")
                  .findings,
              Contains(HasSubstr("did you mean offload_params?")));
}

}  // namespace
}  // namespace fsdp::config
