// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ATen/ops/cat.h"
#include "ATen/ops/randint.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "config/model/train_config.h"
#include "dcp/tensor/dtype.h"
#include "fsdp/examples/train_llama/data.h"
#include "fsdp/examples/train_llama/flags.h"
#include "fsdp/examples/train_llama/model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace llama {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Config, FlagsOverrideTheFile) {
  TempDir dir;
  const std::string path = absl::StrCat(dir.path(), "/llama.conf");
  std::ofstream(path) << "# a comment\n"
                         "data = book.txt  # and another\n"
                         "\n"
                         "steps=7\n"
                         "tied-embeddings = true\n";
  const absl::StatusOr<Config> config =
      ParseFlags({"--steps=9", "--options", path, "--lr", "0.5"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->data, "book.txt");
  EXPECT_EQ(config->steps, 9);
  EXPECT_EQ(*config->train.loop.lr, 0.5);
  EXPECT_TRUE(config->model.tied_embeddings);
}

TEST(Config, RefusesUnknownKeysByName) {
  const auto refuses = [](const std::vector<std::string>& flags,
                          const std::string& what) {
    EXPECT_THAT(ParseFlags(flags).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what)));
  };
  refuses({"--data=a", "--stepz=3"}, "'stepz'");
  refuses({"--data=a", "--steps=none"}, "steps is 'none', not a whole number");
  refuses({"--data=a", "--steps=0"}, "from 1");
  refuses({"--data=a", "--lr=nan"}, "lr is 'nan'");
  refuses({"--data=a", "--optimizer=sgd"}, "adamw or fused_adamw or muon");
  refuses({"--data=a", "--tied-embeddings=maybe"}, "true or false");
  refuses({"--data=a", "--steps"}, "--steps requires a value");
  refuses({"--data=a", "steps"}, "'steps' is not a flag");
  refuses({"--data=a", "--heads=3"}, "dim is 128");
  refuses({"--data=a", "--kv-heads=3"}, "kv-heads, 3");
  refuses({}, "--data=FILE is missing");
  refuses({"--data=a", "--save-every=-1"}, "save-every is '-1'");
  refuses({"--data=a", "--save-every=5"},
          "--save-every requires --checkpoint-dir");
  refuses({"--data=a", "--keep-last=2"},
          "--keep-last requires --checkpoint-dir");
  refuses({"--data=a", "--export=b.pt"}, "--export requires --checkpoint-dir");
  refuses({"--data=a", "--checkpoint-dir=c", "--keep-every=10"},
          "--keep-every requires --keep-last");
  refuses({"--data=a", "--ema=1.5"}, "ema is '1.5', not a number from 0 to 1");
  refuses({"--data=a", "--ema=-0.5"}, "ema is '-0.5'");
  refuses({"--data=a", "--average-from=-1"}, "average-from is '-1'");
  refuses({"--data=a", "--average-every=2"},
          "--average-every requires --ema=DECAY");
}

TEST(Config, ReadsTheOptionsForSaving) {
  const absl::StatusOr<Config> config = ParseFlags(
      {"--data=a", "--checkpoint-dir=run", "--save-every=10", "--keep-last=2",
       "--keep-every=100", "--init-from=b.pt", "--export=c.safetensors"});
  ASSERT_TRUE(config.ok()) << config.status();
  const fsdp::CheckpointConfig& saving = config->train.checkpoint;
  EXPECT_EQ(*saving.folder, "run");
  EXPECT_EQ(*saving.interval, 10);
  EXPECT_EQ(*saving.keep_latest_k, 2);
  EXPECT_EQ(config->keep_every, 100);
  EXPECT_EQ(*saving.initial_load_path, "b.pt");
  EXPECT_TRUE(*saving.cpu_ram_efficient_loading);
  EXPECT_TRUE(*saving.async);
  EXPECT_EQ(config->export_to, "c.safetensors");
}

TEST(Config, FlagsBecomeSettingsWithTheirPlaces) {
  const absl::StatusOr<Config> config =
      ParseFlags({"--data=a", "--replicate=2", "--shard=3",
                  "--reshard-after-forward=2", "--param-dtype=bfloat16",
                  "--checkpoint-activations", "--offload-activations"});
  ASSERT_TRUE(config.ok()) << config.status();
  const fsdp::TrainConfig& train = config->train;
  EXPECT_EQ(*train.mesh.data_parallel_replicate_degree, 2);
  EXPECT_EQ(*train.mesh.data_parallel_shard_degree, 3);
  EXPECT_EQ(to_string(*train.mesh.data_parallel_shard_degree.place()),
            "--shard");
  EXPECT_EQ(std::get<int64_t>(*train.sharding.reshard_after_forward), 2);
  EXPECT_EQ(*train.precision.param_dtype, dcp::DType::kBFloat16);
  EXPECT_EQ(*train.sharding.activation_checkpointing, 1);
  EXPECT_TRUE(*train.sharding.activation_cpu_offload);
  EXPECT_EQ(to_string(*train.sharding.activation_cpu_offload.place()),
            "--offload-activations");
}

TEST(Config, OptionsAndFlagsOverrideAnotherProgramsConfig) {
  TempDir dir;
  const std::string toml = absl::StrCat(dir.path(), "/titan.toml");
  std::ofstream(toml) << "[training]\nsteps = 7\nseq_len = 32\n"
                         "local_batch_size = 3\n"
                         "[optimizer]\nlr = 1e-4\n"
                         "[parallelism]\n"
                         "data_parallel_replicate_degree = 2\n";
  const std::string lines = absl::StrCat(dir.path(), "/llama.conf");
  std::ofstream(lines) << "data = a\nsteps = 8\nseq-len = 64\n";
  absl::StatusOr<Config> config = ParseFlags(
      {"--steps=9", "--options", lines, "--config", toml, "--replicate=4"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->steps, 9);
  EXPECT_EQ(config->seq_len, 64);
  EXPECT_EQ(*config->train.loop.lr, 1e-4);
  EXPECT_EQ(*config->train.mesh.data_parallel_replicate_degree, 4);
  EXPECT_OK(FitBatch(/*world_size=*/2, &*config));
  EXPECT_EQ(config->batch, 6);
  EXPECT_EQ(config->accumulate, 1);
}

TEST(Config, TakesBatchSizesFromAConfig) {
  Config config;
  EXPECT_OK(FitBatch(2, &config));
  EXPECT_EQ(config.batch, 8);
  config = Config();
  config.train.loop.global_batch_size = std::optional<int64_t>(12);
  config.train.loop.local_batch_size = std::optional<int64_t>(3);
  EXPECT_OK(FitBatch(2, &config));
  EXPECT_EQ(config.batch, 6);
  EXPECT_EQ(config.accumulate, 2);
  config.batch = config.accumulate = 0;
  EXPECT_THAT(FitBatch(3, &config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("global_batch_size is 12, not 1 batches")));
  config = Config();
  config.batch = 5;
  EXPECT_THAT(FitBatch(2, &config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--batch=5 is not a multiple of 2 ranks")));
}

TEST(Config, NamesTheLineInAFile) {
  Config config;
  EXPECT_THAT(ReadOptionsText("llama.conf", "steps = 3\nwidth = 4\n", &config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("llama.conf:2:"), HasSubstr("width"))));
  EXPECT_THAT(ReadOptionsText("llama.conf", "steps\n", &config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("llama.conf:1: not of the form")));
}

TEST(Config, HelpNamesEveryOption) {
  const absl::StatusOr<Config> config = ParseFlags({"--help"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->help);
  for (const char* option :
       {"--data", "--replicate", "--reshard-after-forward", "--losses-out",
        "--checkpoint-dir", "--export", "--tp", "--pp", "--microbatches",
        "--experts", "--ep"}) {
    EXPECT_THAT(HelpText(), HasSubstr(option));
  }
}

TEST(Corpus, SlicesOfRanksMakeUpTheStep) {
  const Corpus corpus("the quick brown fox jumps over the lazy dog", 5, 1);
  const Batch whole = corpus.MakeBatch({.step = 3, .num_sequences = 6});
  std::vector<at::Tensor> tokens;
  std::vector<at::Tensor> targets;
  for (int64_t rank = 0; rank < 3; ++rank) {
    const Batch slice = corpus.MakeBatch(
        {.step = 3, .first_sequence = 2 * rank, .num_sequences = 2});
    tokens.push_back(slice.tokens);
    targets.push_back(slice.targets);
  }
  EXPECT_TRUE(whole.tokens.equal(at::cat(tokens)));
  EXPECT_TRUE(whole.targets.equal(at::cat(targets)));
  // A target is the next token.
  EXPECT_TRUE(
      whole.tokens.narrow(1, 1, 4).equal(whole.targets.narrow(1, 0, 4)));
  EXPECT_FALSE(whole.tokens.equal(
      corpus.MakeBatch({.step = 4, .num_sequences = 6}).tokens));
}

TEST(Corpus, RefusesATextThatIsShorterThanASequence) {
  TempDir dir;
  const std::string path = absl::StrCat(dir.path(), "/text");
  std::ofstream(path) << "12345678";
  EXPECT_TRUE(Corpus::Open(path, 7, 0).ok());
  EXPECT_THAT(Corpus::Open(path, 8, 0).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("holds 8 bytes; a sequence needs 9")));
  EXPECT_THAT(Corpus::Open(absl::StrCat(dir.path(), "/none"), 8, 0).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
}

TEST(Llama, AttendsToThePastOnly) {
  const c10::NoGradGuard no_grad;
  Llama model(ModelOptions{.dim = 32, .num_layers = 2, .ffn_dim = 40});
  InitWeights(model, ModelOptions{});
  const at::Tensor tokens = at::randint(256, {2, 9}, at::kLong);
  const at::Tensor logits = model(tokens);
  EXPECT_EQ(logits.sizes(), (at::IntArrayRef{2, 9, 256}));
  at::Tensor changed = tokens.clone();
  changed.select(1, 5).fill_(0).add_(tokens.select(1, 5) == 0);
  const at::Tensor after = model(changed);
  EXPECT_TRUE(logits.narrow(1, 0, 5).allclose(after.narrow(1, 0, 5)));
  EXPECT_FALSE(logits.narrow(1, 5, 4).allclose(after.narrow(1, 5, 4)));
}

}  // namespace
}  // namespace llama
