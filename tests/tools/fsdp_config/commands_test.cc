// SPDX-License-Identifier: Apache-2.0
// Whole commands on real files.

#include "tools/fsdp_config/commands.h"

#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/io/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace fsdp::tools {
namespace {

using ::dcp::testing::ReadFile;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kFsdp1[] = R"(# of the team
distributed_type: FSDP
mixed_precision: bf16
num_processes: 4
fsdp_config:
  fsdp_version: 1
  fsdp_sharding_strategy: SHARD_GRAD_OP  # ZeRO-2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_use_orig_params: true
)";

struct Outcome {
  dcp::tools::ExitCode code;
  std::string out;
  std::string err;
};

class FsdpConfigCommands : public ::testing::Test {
 protected:
  Outcome Run(const std::vector<std::string>& args,
              const std::vector<std::string>& variables = {},
              const std::string& answers = "") {
    std::istringstream in(answers);
    std::ostringstream out, err;
    const dcp::tools::ExitCode code = RunCommand(
        args, variables, {.out = out, .err = err}, *fs_, {.in = &in});
    return {code, out.str(), err.str()};
  }

  dcp::testing::TempDir dir_;
  std::unique_ptr<dcp::FileSystem> fs_ = dcp::NewPosixFileSystem();
};

TEST_F(FsdpConfigCommands, CheckReportsAllProblemsAtOnce) {
  const std::string path = dir_.WriteFile("a.yaml", R"(distributed_type: FSDP
fsdp_config:
  fsdp_version: 3
  fsdp_ofload_params: true
  fsdp_min_num_params: many
)");
  const Outcome outcome = Run({"check", path});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("a.yaml:3: fsdp_config.fsdp_version"),
                    HasSubstr("a.yaml:4: fsdp_config.fsdp_ofload_params"),
                    HasSubstr("fsdp_offload_params"),
                    HasSubstr("a.yaml:5: fsdp_config.fsdp_min_num_params"),
                    HasSubstr("3 problems")));
}

TEST_F(FsdpConfigCommands, CheckAcceptsAGoodFile) {
  const std::string path = dir_.WriteFile("a.yaml", kFsdp1);
  const Outcome outcome = Run({"check", path});
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("(accelerate)"));
  EXPECT_THAT(Run({"check", path, "--json"}).out,
              HasSubstr(R"("dialect":"accelerate")"));
}

TEST_F(FsdpConfigCommands, CheckReadsAllFiles) {
  const std::string bad = dir_.WriteFile("bad.yaml", "distributed_type: X\n");
  const std::string good = dir_.WriteFile("good.yaml", kFsdp1);
  const Outcome outcome = Run({"check", bad, good});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("bad.yaml (accelerate): 1 problem"),
                                 HasSubstr("good.yaml (accelerate)")));
  const Outcome missing = Run({"check", dir_.path() + "/none.yaml", good});
  EXPECT_EQ(missing.code, 3);
  EXPECT_THAT(missing.out, HasSubstr("good.yaml (accelerate)"));
}

TEST_F(FsdpConfigCommands, StrictEndsWith1ForChangesToo) {
  const std::string path = dir_.WriteFile("a.yaml", kFsdp1);
  EXPECT_EQ(Run({"check", path}).code, 0);
  EXPECT_EQ(Run({"check", path, "--strict"}).code, 1);
  EXPECT_EQ(Run({"convert", path, "--to", "torchtitan", "--strict"}).code, 1);
  EXPECT_EQ(Run({"convert", path, "--to", "torchtitan", "--strict"}).out, "");
}

TEST_F(FsdpConfigCommands, CheckFindsDegreesThatDoNotFitTheRanks) {
  const std::string path = dir_.WriteFile(
      "a.yaml",
      "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n"
      "parallelism_config: {dp_replicate_size: 2, dp_shard_size: 3}\n");
  EXPECT_EQ(Run({"check", path, "--world-size", "6"}).code, 0);
  const Outcome outcome = Run({"check", path, "--world-size", "8"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("do not multiply to 8 ranks"));
  // For a file that sets the ranks; if others are started, they decide.
  const std::string written = dir_.WriteFile(
      "b.yaml",
      "distributed_type: FSDP\nnum_processes: 8\n"
      "fsdp_config: {fsdp_version: 2}\n"
      "parallelism_config: {dp_replicate_size: 2, dp_shard_size: 3}\n");
  EXPECT_THAT(Run({"check", written}).out,
              AllOf(HasSubstr("b.yaml:2: num_processes is 8, which"),
                    HasSubstr("do not multiply to 8 ranks")));
  EXPECT_EQ(Run({"check", written, "--world-size", "6"}).code, 0);
}

TEST_F(FsdpConfigCommands, CheckFindsAMeshWithoutShards) {
  const std::string path =
      dir_.WriteFile("a.yaml",
                     "base_model: x/y\nmicro_batch_size: 1\nfsdp_version: 2\n"
                     "fsdp_config: {reshard_after_forward: true}\n"
                     "tensor_parallel_size: 4\n");
  EXPECT_EQ(Run({"check", path, "--world-size", "8"}).code, 0);
  const Outcome outcome = Run({"check", path, "--world-size", "4"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out,
              HasSubstr("a.yaml:5: tensor_parallel_size is 4, which leaves "
                        "FSDP no ranks to shard over"));
}

TEST_F(FsdpConfigCommands, ConvertsReadOnlyDialects) {
  const std::string path = dir_.WriteFile(
      "a.yaml",
      "optimizer: {_component_: torch.optim.AdamW, lr: 1e-5}\ndtype: bf16\n"
      "data_parallel_shard_dim: 4\ndata_parallel_replicate_dim: 2\n");
  EXPECT_THAT(Run({"explain", path}).out,
              HasSubstr("8 ranks: 2 copies x 4 shards"));
  const Outcome outcome = Run({"convert", path, "--to", "torchtitan"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("data_parallel_shard_degree = 4"),
                                 HasSubstr("dtype = \"bfloat16\"")));
}

TEST_F(FsdpConfigCommands, EveryVerbPrintsJson) {
  const std::string path = dir_.WriteFile("a.yaml", kFsdp1);
  EXPECT_THAT(Run({"to-fsdp2", path, "--json"}).out,
              AllOf(HasSubstr(R"("dialect":"accelerate")"),
                    HasSubstr("becomes fsdp_reshard_after_forward: false"),
                    HasSubstr(R"("text":"# of the team\n)")));
  EXPECT_THAT(Run({"convert", path, "--to", "torchtitan", "--json",
                   "--output-file", dir_.path() + "/b.toml"})
                  .out,
              HasSubstr(R"("output_file":)"));
  EXPECT_THAT(Run({"explain", path, "--json"}).out,
              AllOf(HasSubstr(R"("findings":[)"),
                    HasSubstr(R"("param_dtype":"bfloat16")"),
                    HasSubstr(R"("auto_wrap_policy")"),
                    HasSubstr(R"("checkpoint":{)")));
  const std::string bad = dir_.WriteFile("bad.yaml", "distributed_type: X\n");
  EXPECT_THAT(Run({"convert", bad, "--to", "composer", "--json"}).out,
              HasSubstr(R"("kind":"problem")"));
}

TEST_F(FsdpConfigCommands, InitWritesAReadableFile) {
  for (const char* dialect :
       {"accelerate", "transformers", "composer", "torchtitan"}) {
    // Sharded, 8 ranks, 2 copies, and the default for the other questions.
    const bool has_copies = std::string(dialect) != "composer";
    const Outcome outcome =
        Run({"init", "--to", dialect}, {},
            absl::StrCat("\nmany\n8\n", has_copies ? "2\n" : "",
                         "\n\nLlamaDecoderLayer\n\n\n\nyes\n"));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("'many' is not a whole number"));
    const std::string path = dir_.WriteFile("made", outcome.out);
    const Outcome check = Run({"check", path, "--world-size", "8"});
    EXPECT_EQ(check.code, 0) << check.out << outcome.out;
    EXPECT_THAT(check.out, HasSubstr(dialect));
    EXPECT_THAT(Run({"explain", path, "--world-size", "8"}).out,
                AllOf(HasSubstr(has_copies ? "2 copies x 4 shards"
                                           : "8 ranks: 8 shards"),
                      HasSubstr("computes in bfloat16"),
                      HasSubstr("computed again in backward")));
  }
  EXPECT_THAT(Run({"init", "--to", "torchtitan"}, {}, "copied\n4\n\n\n").out,
              HasSubstr("data_parallel_replicate_degree = 4\n"));
  const Outcome copied = Run({"init"}, {}, "accelerate\ncopied\n4\n\n\n");
  EXPECT_EQ(copied.code, 0) << copied.err;
  EXPECT_THAT(copied.out, HasSubstr("distributed_type: MULTI_GPU"));
  const Outcome ended = Run({"init"}, {}, "accelerate\n");
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(ended.out, "");
  EXPECT_THAT(ended.err, HasSubstr("the input ends"));
}

TEST_F(FsdpConfigCommands, DashIsStandardInput) {
  const std::string path = dir_.WriteFile("a.yaml", kFsdp1);
  ASSERT_NE(freopen(path.c_str(), "r", stdin), nullptr);
  const Outcome outcome = Run({"check", "-"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("standard input (accelerate)"));
}

TEST_F(FsdpConfigCommands, ReportsAFileOfAnotherProgram) {
  const std::string path = dir_.WriteFile("a.yaml", "services: {}\n");
  const Outcome outcome = Run({"check", path});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("is a file of Docker Compose"),
                                 HasSubstr("a.yaml: 1 problem")));
  EXPECT_THAT(Run({"check", path, "--json"}).out,
              HasSubstr(R"("dialect":null)"));
}

TEST_F(FsdpConfigCommands, EnvironmentOverridesOnRequest) {
  const std::string path = dir_.WriteFile("a.yaml", kFsdp1);
  const std::vector<std::string> variables = {"FSDP_VERSION=7"};
  EXPECT_EQ(Run({"check", path}, variables).code, 0);
  EXPECT_EQ(Run({"check", path, "--environment"}, variables).code, 1);
}

TEST_F(FsdpConfigCommands, ExplainUsesTheRanksInTheFile) {
  const std::string path = dir_.WriteFile("a.yaml", kFsdp1);
  EXPECT_THAT(Run({"explain", path}).out,
              AllOf(HasSubstr("4 ranks: 4 shards"), HasSubstr("ZeRO stage 2"),
                    HasSubstr("computes in bfloat16")));
  const std::string toml = dir_.WriteFile(
      "a.toml", "[parallelism]\ndata_parallel_shard_degree = 3\n");
  const Outcome outcome = Run({"explain", toml, "--world-size", "8"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("a.toml:2"));
}

TEST_F(FsdpConfigCommands, ExplainDerivesRanksFromDegrees) {
  const auto first_line = [this](const std::string& degrees) {
    const std::string out =
        Run({"explain", dir_.WriteFile("a.toml", "[parallelism]\n" + degrees)})
            .out;
    return out.substr(0, out.find('\n'));
  };
  EXPECT_EQ(first_line("data_parallel_shard_degree = 4\n"
                       "data_parallel_replicate_degree = 2\n"
                       "tensor_parallel_degree = 2\n"),
            "Mesh: 16 ranks: 2 copies x 4 shards x 2 parts of each layer");
  EXPECT_EQ(first_line("data_parallel_shard_degree = 2\n"),
            "Mesh: 2 ranks: 2 shards");
  EXPECT_EQ(first_line("tensor_parallel_degree = 3\n"),
            "Mesh: 9 ranks: 3 shards x 3 parts of each layer");
  EXPECT_THAT(first_line("pipeline_parallel_degree = 4\n"
                         "expert_parallel_degree = 8\n"),
              HasSubstr("Mesh: 32 ranks: 4 stages x 8 shards"));
}

TEST_F(FsdpConfigCommands, ExplainReportsMistakesInJson) {
  const std::string path = dir_.WriteFile(
      "a.toml", "[parallelism]\ndata_parallel_shard_degree = 3\n");
  const Outcome outcome = Run({"explain", path, "--world-size", "8", "--json"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr(R"("kind":"problem")"),
                                 HasSubstr("they do not multiply to 8 ranks"),
                                 HasSubstr(R"("dialect":"torchtitan")")));
}

TEST_F(FsdpConfigCommands, ToFsdp2KeepsCommentsAndOtherFiles) {
  const std::string path = dir_.WriteFile("a.yaml", kFsdp1);
  const std::string copy = dir_.Join("b.yaml");
  const Outcome printed = Run({"to-fsdp2", path});
  EXPECT_EQ(printed.code, 0) << printed.err;
  EXPECT_THAT(printed.out,
              AllOf(HasSubstr("# of the team\n"), HasSubstr("fsdp_version: 2"),
                    HasSubstr("fsdp_reshard_after_forward: false"
                              "  # ZeRO-2")));
  EXPECT_THAT(printed.err, HasSubstr("fsdp_use_orig_params"));
  EXPECT_EQ(ReadFile(path), kFsdp1);

  EXPECT_EQ(Run({"to-fsdp2", path, "--output-file", copy}).code, 0);
  EXPECT_EQ(ReadFile(copy), printed.out);
  const Outcome refused = Run({"to-fsdp2", path, "--output-file", copy});
  EXPECT_EQ(refused.code, 5);
  EXPECT_THAT(refused.err, HasSubstr("--overwrite"));
  EXPECT_EQ(Run({"to-fsdp2", path, "--overwrite"}).code, 0);
  EXPECT_EQ(ReadFile(path), printed.out);
}

TEST_F(FsdpConfigCommands, IgnoresFilesFromAKilledRun) {
  const std::string path = dir_.WriteFile("a.yaml", kFsdp1);
  const std::string left = dir_.WriteFile("b.yaml.tmp", "half");
  const std::string copy = dir_.Join("b.yaml");
  const Outcome outcome = Run({"to-fsdp2", path, "--output-file", copy});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(fs_->Stat(copy).ok());
  EXPECT_EQ(ReadFile(left), "half") << "a file of somebody else";
}

TEST_F(FsdpConfigCommands, ConvertWritesAReadableFile) {
  const std::string path = dir_.WriteFile("a.yaml", kFsdp1);
  for (const char* dialect :
       {"accelerate", "transformers", "composer", "torchtitan"}) {
    const std::string name = std::string(dialect) == "torchtitan" ? "c.toml"
                             : std::string(dialect) == "transformers"
                                 ? "c.json"
                                 : "c.yaml";
    const std::string copy = dir_.Join(dialect + name);
    const Outcome outcome =
        Run({"convert", path, "--to", dialect, "--output-file", copy});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const Outcome checked = Run({"check", copy});
    EXPECT_EQ(checked.code, 0) << checked.out;
    EXPECT_THAT(checked.out, HasSubstr(dialect));
  }
}

TEST_F(FsdpConfigCommands, ConvertUsesTheGivenRanks) {
  const std::string copies =
      dir_.WriteFile("a.json", "{\"bf16\": true, \"num_train_epochs\": 1}");
  const Outcome unknown = Run({"convert", copies, "--to", "torchtitan"});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_EQ(unknown.out, "");
  EXPECT_THAT(unknown.err, HasSubstr("requires a number here; give the number "
                                     "of ranks with --world-size"));
  EXPECT_THAT(
      Run({"convert", copies, "--to", "torchtitan", "--world-size", "6"}).out,
      HasSubstr("data_parallel_replicate_degree = 6\n"
                "data_parallel_shard_degree = 1\n"));
  const std::string machines =
      dir_.WriteFile("b.yaml",
                     "precision: fp32\nfsdp_config: {sharding_strategy: "
                     "HYBRID_SHARD}\n");
  EXPECT_THAT(Run({"convert", machines, "--to", "torchtitan", "--world-size",
                   "16", "--local-world-size", "4"})
                  .out,
              HasSubstr("data_parallel_replicate_degree = 4\n"
                        "data_parallel_shard_degree = 4\n"));
  const std::string fixed =
      dir_.WriteFile("c.toml", "[parallelism]\ntensor_parallel_degree = 4\n");
  EXPECT_THAT(
      Run({"convert", fixed, "--to", "accelerate", "--world-size", "6"}).err,
      HasSubstr("which does not divide 6 ranks"));
}

TEST_F(FsdpConfigCommands, WritesNothingForABrokenFile) {
  const std::string path = dir_.WriteFile("a.yaml", "fsdp_config: [\n");
  const std::string copy = dir_.Join("b.yaml");
  for (const char* verb : {"to-fsdp2", "convert"}) {
    std::vector<std::string> args = {verb, path, "--output-file", copy};
    if (std::string(verb) == "convert")
      args.insert(args.end(), {"--to", "composer"});
    const Outcome outcome = Run(args);
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(outcome.err, HasSubstr("problem: "));
    EXPECT_FALSE(fs_->Stat(copy).ok());
  }
}

TEST_F(FsdpConfigCommands, NamesUnreadableFiles) {
  const Outcome outcome = Run({"check", dir_.Join("none.yaml")});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("none.yaml"));
  EXPECT_EQ(Run({"check", dir_.path()}).code, 3);
  EXPECT_EQ(
      Run({"check", dir_.WriteFile("big.yaml", std::string(2 << 20, ' '))})
          .code,
      3);
  const std::string path = dir_.WriteFile("a.yaml", kFsdp1);
  EXPECT_EQ(Run({"explain", path, "--model", dir_.Join("none")}).code, 3);
  EXPECT_EQ(
      Run({"to-fsdp2", path, "--output-file", dir_.Join("none/b.yaml")}).code,
      4);
}

}  // namespace
}  // namespace fsdp::tools
