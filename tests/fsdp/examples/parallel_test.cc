// SPDX-License-Identifier: Apache-2.0

#include "fsdp/examples/train_llama/parallel.h"

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "config/model/train_config.h"
#include "fsdp/examples/train_llama/flags.h"
#include "fsdp/examples/train_llama/model.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/parallel_dims.h"
#include "fsdp/parallel/activation.h"
#include "fsdp/parallel/tensor/load_plan.h"
#include "fsdp/parallel/tensor/parallelize_module.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/parallel/llama.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace llama {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::fsdp::testing::MakeLlama;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Parallel, SuggestsOptionsThatWork) {
  const auto refuses = [](std::vector<std::string> flags,
                          const std::string& what) {
    flags.emplace_back("--data=a");
    EXPECT_THAT(ParseFlags(flags).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what)));
  };
  refuses({"--tp=0"}, "tp is '0', not a whole number from 1");
  refuses({"--sp"}, "--sp requires --tp=N");
  refuses({"--plan=p.yaml"}, "--plan requires --tp=N");
  refuses({"--tp=2", "--sp", "--plan=p.yaml"},
          "--sp belongs to the built-in plan");
  refuses({"--cp=3", "--seq-len=64"},
          "--cp=3 requires a --seq-len that is a multiple of 6; 64 is not");
  refuses({"--cp=2", "--cp-method=ulysses", "--heads=4", "--kv-heads=1"},
          "--cp-method=ulysses divides the 4 heads, and the 1 of keys and "
          "values, among 2 ranks");
  refuses({"--cp-method=ring"},
          "cp-method is 'ring', not allgather or alltoall or ulysses");
  refuses({"--ep=2"}, "--ep requires --experts=E");
  refuses({"--top-k=1"}, "--top-k requires --experts=E");
  refuses({"--experts=2", "--top-k=3"}, "top-k is 3, more than the 2 experts");
  refuses({"--experts=4", "--ep=3"},
          "--ep=3 does not divide the 4 of --experts");
  refuses({"--microbatches=2"}, "require --pp=N");
  refuses({"--pp-schedule=gpipe"}, "require --pp=N");
  refuses({"--pp-stages=2"}, "require --pp=N");
  refuses({"--pp=3", "--pp-schedule=zbv"},
          "--pp=3, with 2 stages on each, requires 6 stages and as many "
          "--layers");
  refuses({"--pp=2", "--tied-embeddings"}, "leave it out, or --pp");
  refuses({"--pp=5"},
          "--pp=5 requires as many --layers, for each stage to have "
          "one; 4 are fewer");
  refuses({"--pp=2", "--cp=2"}, "write --tp=N --sp instead of --cp");
  refuses({"--pp=2", "--tp=3", "--sp"},
          "a --seq-len that is a multiple of --tp=3; 64 is not");
  refuses({"--pp=3", "--microbatches=2"},
          "write at least 3, the number of stages, or --pp-schedule=gpipe");
}

TEST(Parallel, MicrobatchesDivideARanksSequences) {
  Config config = ParseFlags({"--data=a", "--pp=2", "--batch=12"}).value();
  config.accumulate = 1;
  EXPECT_OK(FitMicrobatches(/*num_readers=*/2, &config));
  EXPECT_EQ(config.microbatches, 2);
  EXPECT_THAT(FitMicrobatches(/*num_readers=*/4, &config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--microbatches=2 does not divide the 3 "
                                 "sequences that a rank reads, --batch=12 "
                                 "divided by 4 readers; a --batch of 8 and its "
                                 "multiples can be divided")));
}

// No rank can send all stages' weights, and microbatches would gather
// parameters again and again.
TEST(Parallel, StagesReadTheirOwnWeightsAndGatherOnce) {
  const auto train = [](const std::vector<std::string>& flags) {
    return ParseFlags(flags).value().train;
  };
  const fsdp::TrainConfig config =
      train({"--data=a", "--pp=2", "--init-from=b.pt"});
  EXPECT_FALSE(*config.checkpoint.cpu_ram_efficient_loading);
  EXPECT_FALSE(std::get<bool>(*config.sharding.reshard_after_forward));
  EXPECT_TRUE(std::get<bool>(
      *train({"--data=a", "--pp=2", "--reshard-after-forward=true"})
           .sharding.reshard_after_forward));
}

TEST(Parallel, DegreesMultiplyToTheRanks) {
  const auto degrees_of = [](std::vector<std::string> flags, int64_t ranks) {
    flags.emplace_back("--data=a");
    return ChooseDegrees(ParseFlags(flags).value(), ranks, ranks);
  };
  const auto degrees = degrees_of({"--tp=2", "--cp=2", "--replicate=2"}, 16);
  ASSERT_OK(degrees.status());
  EXPECT_EQ(degrees->dp_replicate, 2);
  EXPECT_EQ(degrees->dp_shard, 2);
  EXPECT_EQ(degrees->cp, 2);
  EXPECT_EQ(degrees->tp, 2);
  EXPECT_EQ(degrees->size("batch"), 4);
  const auto refuses = [&](const std::vector<std::string>& flags,
                           const std::string& what) {
    EXPECT_THAT(degrees_of(flags, 4).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what)));
  };
  refuses({"--cp=3", "--seq-len=60", "--tp=2"},
          "--cp is 3, which does not divide the 2 ranks that other degrees "
          "leave of 4");
  refuses({"--pp=3", "--tp=2"},
          "--pp is 3, which does not divide the 2 ranks that other degrees "
          "leave of 4");
  refuses({"--experts=8", "--ep=4", "--replicate=2"},
          "--ep is 4: experts are divided among the 2 ranks of shards");
  refuses({"--tp=3"}, "--tp is 3, which does not divide 4 ranks");
  refuses({"--tp=2", "--replicate=2", "--shard=2"},
          "--replicate is 2, --shard is 2, --tp is 2: they do not multiply to "
          "4 ranks");
}

// A config has degrees and a plan, which flags override.
TEST(Parallel, AConfigMayReplaceFlags) {
  TempDir dir;
  const std::string path = dir.path() + "/composer.yaml";
  std::ofstream(path) << "precision: fp32\n"
                         "parallelism_config:\n"
                         "  fsdp2: {activation_checkpointing: false}\n"
                         "  tp:\n"
                         "    tensor_parallel_degree: 2\n"
                         "    layer_plan: {layers.*.mlp.up_proj: colwise}\n";
  std::vector<std::string> flags = {"--data=a", "--config=" + path};
  const Config config = ParseFlags(flags).value();
  EXPECT_EQ(ChooseDegrees(config, 4, 4)->tp, 2);
  EXPECT_EQ(ChoosePlan(config, *MakeLlama()),
            (fsdp::ParallelizePlan{
                {"layers.*.mlp.up_proj", fsdp::ColwiseParallel()}}));
  flags.emplace_back("--tp=4");
  EXPECT_EQ(ChooseDegrees(ParseFlags(flags).value(), 4, 4)->tp, 4);
  flags.emplace_back("--sp");
  EXPECT_THAT(ParseFlags(flags).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--sp belongs to the built-in plan")));
}

TEST(Parallel, WarnsAboutHeadsThatDoNotDivide) {
  const auto warning = [](const std::string& flag) {
    return HeadsWarning(ParseFlags({"--data=a", flag}).value());
  };
  EXPECT_EQ(warning("--tp=1"), "");
  EXPECT_EQ(warning("--tp=2"), "");
  EXPECT_THAT(warning("--tp=4"),
              HasSubstr("--tp=4 does not divide the 4 heads or the 2 of keys"));
}

// In this Llama no operator gathers, whichever way the plan is written.
void ExpectTrainsInParts(const fsdp::ParallelDims& dims, Llama model,
                         const fsdp::ParallelizePlan& plan) {
  fsdp::parallelize_module(model, dims.get_mesh("tp"), plan);
  const fsdp::FullyShardOptions options{.mesh = dims.fsdp_mesh()};
  for (const auto& block : *model->layers) fsdp::fully_shard(block, options);
  fsdp::fully_shard(model, options);
  const fsdp::StrictLayouts strict;
  fsdp::testing::ExpectTrainsAsOne(
      model, MakeLlama(), 2 * dims.get_mesh("batch").get_local_rank(), 2);
  EXPECT_THAT(fsdp::gathered_operators(), IsEmpty());
}

TEST(Parallel, TheBuiltInPlanGathersNothing) {
  fsdp::testing::RunRanks(4, [] {
    fsdp::testing::StartRankInDouble();
    const fsdp::ParallelDims dims = fsdp::init_parallel_dims({.tp = 2}, "cpu");
    for (const bool sequence_parallel : {false, true}) {
      const Llama model = MakeLlama();
      ExpectTrainsInParts(dims, model, BuiltInPlan(*model, sequence_parallel));
    }
  });
}

// The lines in `text` between two lines, without their common beginning.
std::string LinesBetween(const std::string& text, const std::string& first,
                         const std::string& last) {
  const size_t begin = text.find('\n', text.find(first)) + 1;
  const size_t end = text.find(last, begin);
  if (end == std::string::npos) return "";
  return absl::StrReplaceAll(text.substr(begin, end - begin), {{"\n  ", "\n"}})
      .substr(text[begin] == ' ' ? 2 : 0);
}

TEST(Parallel, DocumentedPlansMatchTheBuiltInPlan) {
  std::ifstream readme("fsdp/examples/README.md");
  const std::string page((std::istreambuf_iterator<char>(readme)),
                         std::istreambuf_iterator<char>());
  TempDir dir;
  Llama model = MakeLlama();
  const auto expect_plan = [&](const std::string& lines,
                               bool sequence_parallel) {
    Config config;
    config.plan = absl::StrCat(dir.path(), "/plan.yaml");
    std::ofstream(config.plan) << lines;
    EXPECT_EQ(ChoosePlan(config, *model),
              BuiltInPlan(*model, sequence_parallel))
        << lines;
  };
  expect_plan(LinesBetween(HelpText(), "<<'PLAN'", "  PLAN"), false);
  expect_plan(LinesBetween(page, "```yaml", "```"), true);
}

}  // namespace
}  // namespace llama
