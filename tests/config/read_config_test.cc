// SPDX-License-Identifier: Apache-2.0

#include "config/read_config.h"

#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "config/dialect_table.h"
#include "config/write_config.h"
#include "dcp/base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fsdp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string WriteFile(const std::string& name, absl::string_view text) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/", name);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

constexpr absl::string_view kAccelerate =
    "distributed_type: FSDP\n"
    "fsdp_config:\n"
    "  fsdp_version: 2\n"
    "  fsdp_reshard_after_forward: false\n";

TEST(ReadConfig, ReadsEachDialect) {
  const std::vector<std::pair<std::string, ConfigDialect>> names = {
      {"a.yaml", ConfigDialect::kAccelerate},
      {"a.json", ConfigDialect::kTransformers},
      {"a.yaml", ConfigDialect::kComposer},
      {"a.toml", ConfigDialect::kTorchTitan}};
  for (const auto& [name, dialect] : names) {
    TrainConfig config;
    config.sharding.reshard_after_forward = ReshardSetting(false);
    Findings written;
    const ReadConfig read =
        read_config_text(name, write_config(config, dialect, written));
    EXPECT_OK(read.findings.ToStatus());
    EXPECT_EQ(read.dialect, dialect) << dialect_name(dialect);
    EXPECT_EQ(*read.config.sharding.reshard_after_forward,
              ReshardSetting(false));
  }
}

// Files in which two keys fit a dialect and one does not.
TEST(ReadConfig, RefusesFilesThatAskForOtherTraining) {
  for (const char* base :
       {"output_dir: x\nbf16: true\nper_device_train_batch_size: 1\n",
        "base_model: m\nmicro_batch_size: 1\nsequence_len: 8\n",
        "max_duration: 1ba\ntrain_loader: {}\nprecision: fp32\n",
        "training: {steps: 10, seq_len: 8}\n",
        "distributed_type: MULTI_GPU\n"}) {
    EXPECT_OK(read_config_text("a.yaml", base).findings.ToStatus());
    for (const char* key :
         {"optim_config: {name: muon}\n", "lr_of_heads: 1.0\n", "tp_size: 2\n",
          "fsdp_plan: {layers: shard}\n"}) {
      const ReadConfig read =
          read_config_text("a.yaml", absl::StrCat(base, key));
      EXPECT_TRUE(read.findings.has_problems()) << base << key;
    }
  }
}

TEST(ReadConfig, ReadsPythonDicts) {
  const ReadConfig read =
      read_config_text("run.py",
                       "from composer import Trainer\n\n"
                       "parallelism_config = {\n"
                       "    'fsdp2': {\n"
                       "        'reshard_after_forward': False,  # ZeRO-2\n"
                       "    },\n"
                       "}\n");
  EXPECT_OK(read.findings.ToStatus());
  EXPECT_EQ(read.dialect, ConfigDialect::kComposer);
  EXPECT_EQ(*read.config.sharding.reshard_after_forward, ReshardSetting(false));
  EXPECT_EQ(read.config.sharding.reshard_after_forward.place()->line, 5);
}

TEST(ReadConfig, ReportsAllProblemsAtOnce) {
  const ReadConfig read = read_config_text("run.yaml",
                                           "distributed_type: FSDP\n"
                                           "fsdp_config:\n"
                                           "  fsdp_version: 3\n"
                                           "  fsdp_offload_params: maybe\n"
                                           "  fsdp_offload_params: true\n");
  EXPECT_THAT(
      read.findings.ToStatus(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("run.yaml:3: fsdp_config.fsdp_version"),
                     HasSubstr("run.yaml:4: "), HasSubstr("run.yaml:5: "))));
}

TEST(ReadConfig, RefusesTextWithoutADialect) {
  for (const char* name : {"run.yaml", "run"}) {
    const ReadConfig read = read_config_text(name, "services: {}\n");
    EXPECT_THAT(read.findings.ToStatus(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("is a file of Docker Compose")));
  }
}

TEST(ReadConfig, UnknownTextNamesTheExpectedKeys) {
  const ReadConfig read = read_config_text("Cargo.toml", "");
  EXPECT_THAT(
      read.findings.ToStatus(),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr(
              "no key that only one of them has, such as distributed_type")));
}

TEST(ReadConfig, ReadsRunParameters) {
  const ReadConfig read =
      read_config_text("run.yaml",
                       "name: run\nimage: i\ncommand: composer train.py\n"
                       "parameters:\n"
                       "  variables: {seed: 5}\n"
                       "  max_duration: 10ba\n"
                       "  seed: ${variables.seed}\n"
                       "  fsdp_config: {sharding_strategy: SHARD_GRAD_OP}\n");
  EXPECT_OK(read.findings.ToStatus());
  EXPECT_EQ(*read.config.loop.seed, 5);
  EXPECT_EQ(*read.config.sharding.reshard_after_forward, ReshardSetting(false));
  EXPECT_EQ(read.config.sharding.reshard_after_forward.place()->key,
            "parameters.fsdp_config.sharding_strategy");
}

TEST(ReadConfig, RefusesTorchTitanProgramsWithAdvice) {
  const ReadConfig read = read_config_text(
      "config_registry.py",
      "from torchtitan.config import ParallelismConfig\n\n"
      "def debug():\n    return ParallelismConfig(tensor_parallel_degree=2)\n");
  EXPECT_THAT(read.findings.ToStatus(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--debug.print_config")));
}

// The config as 0.3 prints it, under torchrun.
TEST(ReadConfig, ReadsTorchTitansPrintedConfig) {
  const ReadConfig read = read_config_text(
      "train.log",
      "[rank0]:[titan] INFO - Starting\n"
      "[rank0]:[titan] INFO - Running with configs: {\n"
      "[rank0]:  \"model_spec\": {\"name\": \"llama3}\"},\n"
      "[rank0]:  \"dump_folder\": \"runs\",\n"
      "[rank0]:  \"optimizer\": {\"param_groups\": [{\"pattern\": \".*\",\n"
      "[rank0]:    \"optimizer_name\": \"AdamW\",\n"
      "[rank0]:    \"optimizer_kwargs\": {\"lr\": 0.0003}}]},\n"
      "[rank0]:  \"training\": {\"max_context_length\": 1024,\n"
      "[rank0]:    \"num_tokens_per_microbatch_per_dp_rank\": 4096},\n"
      "[rank0]:  \"parallelism\": {\"tensor_parallel_degree\": 4},\n"
      "[rank0]:  \"checkpoint\": {\"enable\": true},\n"
      "[rank0]:  \"activation_checkpoint\": null\n"
      "[rank0]:}\n"
      "[rank0]:[titan] INFO - Building\n");
  EXPECT_OK(read.findings.ToStatus());
  EXPECT_EQ(read.dialect, ConfigDialect::kTorchTitan);
  const TrainConfig& config = read.config;
  EXPECT_EQ(*config.mesh.tensor_parallel_degree, 4);
  EXPECT_EQ(config.mesh.tensor_parallel_degree.place()->line, 10);
  EXPECT_EQ(*config.loop.lr, 0.0003);
  EXPECT_EQ(*config.loop.seq_len, 1024);
  EXPECT_EQ(*config.loop.local_batch_size, 4);
  EXPECT_EQ(*config.checkpoint.folder, "runs/checkpoint");
  EXPECT_EQ(*config.sharding.activation_checkpointing, 0);
}

TEST(ReadConfig, ReportsBrokenTextOnce) {
  for (const char* name : {"run.yaml", "run.json", "run.toml", "run.py"}) {
    const ReadConfig read = read_config_text(name, "{\"a\": [");
    EXPECT_EQ(read.findings.list().size(), 1) << name;
  }
}

TEST(ReadConfig, ReadsFiles) {
  const std::string path = WriteFile("reads_a_file.yaml", kAccelerate);
  ASSERT_OK_AND_ASSIGN(const ReadConfig read, read_config_file(path));
  EXPECT_OK(read.findings.ToStatus());
  EXPECT_EQ(read.config.sharding.reshard_after_forward.place()->file, path);
}

TEST(ReadConfig, ReadsOptionsFromAnotherFile) {
  WriteFile("followed.json", R"({"version": 2, "cpu_offload": true})");
  const std::string path = WriteFile("follows.json",
                                     R"({"output_dir": "x", "fsdp": true,
                    "fsdp_config": "followed.json"})");
  ASSERT_OK_AND_ASSIGN(const ReadConfig read, read_config_file(path));
  EXPECT_OK(read.findings.ToStatus());
  EXPECT_TRUE(*read.config.sharding.cpu_offload);
  EXPECT_THAT(read.config.sharding.cpu_offload.place()->file,
              HasSubstr("followed.json"));
  const std::string missing = WriteFile("follows_nothing.json",
                                        R"({"output_dir": "x", "fsdp": true,
                    "fsdp_config": "not_there.json"})");
  ASSERT_OK_AND_ASSIGN(const ReadConfig broken, read_config_file(missing));
  EXPECT_THAT(broken.findings.ToStatus(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("not_there.json does not exist")));
}

TEST(ReadConfig, LoadLogsChangedAndIgnoredSettings) {
  const std::string path =
      WriteFile("load_says.yaml",
                absl::StrCat(kAccelerate, "  fsdp_use_orig_params: true\n"));
  std::vector<std::string> lines;
  dcp::SetLogSink([&lines](dcp::LogSeverity, absl::string_view line) {
    lines.emplace_back(line);
  });
  const absl::StatusOr<TrainConfig> first = load_config(path);
  ASSERT_EQ(setenv("RANK", "1", 1), 0);
  const absl::StatusOr<TrainConfig> second = load_config(path);
  ASSERT_EQ(unsetenv("RANK"), 0);
  dcp::SetLogSink([](dcp::LogSeverity, absl::string_view line) {
    std::cerr << line << "\n";
  });
  ASSERT_OK(first);
  ASSERT_OK(second);
  // The first rank logs them once.
  EXPECT_THAT(lines,
              ::testing::ElementsAre(AllOf(HasSubstr("fsdp_use_orig_params"),
                                           HasSubstr("has no effect"))));
}

TEST(ReadConfig, UnreadableFilesAreErrors) {
  EXPECT_THAT(read_config_file(::testing::TempDir() + "/not_there.yaml"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("not_there")));
  EXPECT_THAT(
      read_config_file(::testing::TempDir()),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is a folder")));
  const std::string large =
      WriteFile("large.yaml", std::string((size_t{1} << 20) + 1, '\n'));
  EXPECT_THAT(read_config_file(large),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has more than 1048576 bytes")));
}

TEST(ReadConfig, RefusesEndlessFiles) {
  EXPECT_THAT(read_config_file("/dev/zero"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has more than 1048576 bytes")));
}

TEST(ReadConfig, LoadReturnsTheConfigOrTheProblems) {
  const std::string good = WriteFile("load_good.yaml", kAccelerate);
  ASSERT_OK_AND_ASSIGN(const TrainConfig config, load_config(good));
  EXPECT_EQ(*config.sharding.reshard_after_forward, ReshardSetting(false));
  const std::string bad = WriteFile(
      "load_bad.yaml", absl::StrCat(kAccelerate, "  fsdp_vershun: 2\n"));
  EXPECT_THAT(load_config(bad), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("fsdp_vershun")));
  EXPECT_THAT(load_config(bad + ".not"), StatusIs(absl::StatusCode::kNotFound));
}

TEST(ReadConfig, LoadAddsTheEnvironment) {
  const std::string path = WriteFile("load_environment.yaml", kAccelerate);
  ASSERT_EQ(setenv("FSDP_RESHARD_AFTER_FORWARD", "true", 1), 0);
  const absl::StatusOr<TrainConfig> config = load_config(path);
  ASSERT_EQ(unsetenv("FSDP_RESHARD_AFTER_FORWARD"), 0);
  ASSERT_OK(config);
  EXPECT_EQ(*config->sharding.reshard_after_forward, ReshardSetting(true));
}

TEST(ReadConfig, LoadUsesAcceleratesEnvironmentForItsDialectsOnly) {
  const std::string path =
      WriteFile("load_environment.toml",
                "[parallelism]\ndata_parallel_shard_degree = 2\n");
  ASSERT_EQ(setenv("FSDP_RESHARD_AFTER_FORWARD", "false", 1), 0);
  const absl::StatusOr<TrainConfig> config = load_config(path);
  ASSERT_EQ(unsetenv("FSDP_RESHARD_AFTER_FORWARD"), 0);
  ASSERT_OK(config);
  EXPECT_NE(*config->sharding.reshard_after_forward, ReshardSetting(false));
}

}  // namespace
}  // namespace fsdp
