// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/options/command_line.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tools/dcp_convert/options/command_line_parser.h"
#include "tools/dcp_convert/options/option_table.h"

namespace dcp::tools {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Words are separated by single spaces.
absl::StatusOr<CommandLine> Parse(absl::string_view words) {
  return ParseCommandLine(
      std::vector<std::string>(absl::StrSplit(words, ' ', absl::SkipEmpty())));
}

TEST(CommandLine, TakesVerbAndPaths) {
  ASSERT_OK_AND_ASSIGN(const CommandLine line, Parse("diff a b"));
  EXPECT_EQ(line.action, CommandLine::Action::kRun);
  EXPECT_EQ(line.verb, Verb::kDiff);
  EXPECT_THAT(line.paths, ElementsAre("a", "b"));
}

TEST(CommandLine, OptionsMayFollowTheVerbAnywhere) {
  ASSERT_OK_AND_ASSIGN(
      const CommandLine line,
      Parse("inspect --json path --tensors *.w --chunks --rank=3"));
  EXPECT_TRUE(line.json);
  EXPECT_TRUE(line.inspect.chunks);
  EXPECT_EQ(line.inspect.tensors_glob, "*.w");
  EXPECT_EQ(line.source.rank, 3);
  EXPECT_THAT(line.paths, ElementsAre("path"));
}

TEST(CommandLine, ParsesATolerance) {
  ASSERT_OK_AND_ASSIGN(const CommandLine bits, Parse("diff a b"));
  EXPECT_FALSE(bits.diff.tolerance.has_value());
  ASSERT_OK_AND_ASSIGN(const CommandLine line,
                       Parse("diff a b --rtol 1e-5 --atol=1e-8"));
  ASSERT_TRUE(line.diff.tolerance.has_value());
  EXPECT_EQ(line.diff.tolerance->atol, 1e-8);
  EXPECT_EQ(line.diff.tolerance->rtol, 1e-5);
  EXPECT_TRUE(line.diff.tolerance->equal_nan);
  ASSERT_OK_AND_ASSIGN(const CommandLine nan, Parse("diff a b --no-equal-nan"));
  ASSERT_TRUE(nan.diff.tolerance.has_value());
  EXPECT_FALSE(nan.diff.tolerance->equal_nan);
  for (const char* wrong : {"-1", "nan", "inf", "x", ""}) {
    EXPECT_THAT(Parse(absl::StrCat("diff a b --atol=", wrong)),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("not negative")));
  }
}

TEST(CommandLine, TwoDashesEndTheOptions) {
  ASSERT_OK_AND_ASSIGN(const CommandLine line, Parse("inspect -- --json"));
  EXPECT_FALSE(line.json);
  EXPECT_THAT(line.paths, ElementsAre("--json"));
}

TEST(CommandLine, ParsesEveryWriteOption) {
  ASSERT_OK_AND_ASSIGN(
      const CommandLine line,
      Parse("convert s d --to=dcp --mesh dp=2,tp=2 --place *=S(0),R "
            "--place a=b=R,R --include a* --include b* --exclude c "
            "--rename s/x/y/ --cast bf16 --cast *.n=float32 "
            "--max-shard-size 5GB --drop-non-tensors --overwrite --plan "
            "--max-memory 64MiB --lanes 4 --direct off --progress json"));
  EXPECT_EQ(line.write.spec.to, Format::kDcp);
  ASSERT_TRUE(line.write.spec.mesh.has_value());
  EXPECT_EQ(ToString(*line.write.spec.mesh), "dp=2,tp=2");
  ASSERT_EQ(line.write.spec.placements.size(), 2u);
  EXPECT_EQ(line.write.spec.placements[0].glob, "*");
  EXPECT_EQ(ToString(line.write.spec.placements[0].placements), "S(0),R");
  EXPECT_EQ(line.write.spec.placements[1].glob, "a=b");
  EXPECT_THAT(line.selection.include, ElementsAre("a*", "b*"));
  EXPECT_THAT(line.selection.exclude, ElementsAre("c"));
  EXPECT_THAT(line.selection.renames, ElementsAre("s/x/y/"));
  EXPECT_THAT(line.selection.casts, ElementsAre("bf16", "*.n=float32"));
  EXPECT_EQ(line.write.spec.max_shard_bytes, 5'000'000'000u);
  EXPECT_TRUE(line.write.spec.drop_non_tensors);
  EXPECT_TRUE(line.write.spec.overwrite);
  EXPECT_TRUE(line.write.plan);
  EXPECT_EQ(line.memory_bytes, uint64_t{64} << 20);
  EXPECT_EQ(line.write.num_lanes, 4u);
  EXPECT_EQ(line.source.direct, DirectMode::kOff);
  EXPECT_EQ(line.progress, ProgressMode::kJson);
}

TEST(CommandLine, ParsesEveryDialectOption) {
  ASSERT_OK_AND_ASSIGN(
      const CommandLine line,
      Parse("diff s d --from deepspeed --rank-files w.{rank}.pt --layout l "
            "--like m --flat-units layers.* --weights low --unstack-layers "
            "--optimizer-names torch --part model --part extra "
            "--strip-wrappers"));
  const DialectOptions expected = {.from = Dialect::kDeepSpeed,
                                   .rank_files = "w.{rank}.pt",
                                   .layout = "l",
                                   .like = "m",
                                   .flat_units = "layers.*",
                                   .low_precision_weights = true,
                                   .unstack_layers = true,
                                   .torch_optimizer_names = true};
  EXPECT_EQ(SourceOpenOptions(line).dialect, expected);
  EXPECT_FALSE(SecondSourceOpenOptions(line).dialect.from.has_value());
  EXPECT_THAT(line.selection.parts,
              ElementsAre(StatePart::kModel, StatePart::kExtra));
  EXPECT_TRUE(line.selection.strip_wrappers);
}

TEST(CommandLine, DashIsStandardOutput) {
  for (const char* words :
       {"convert a -", "consolidate a - --to pt", "consolidate a -",
        "dcp_to_torch a -", "convert a - --plan --json"}) {
    const absl::StatusOr<CommandLine> line = Parse(words);
    ASSERT_OK(line) << words;
    EXPECT_TRUE(WritesToStandardOutput(*line)) << words;
  }
  const absl::StatusOr<CommandLine> file = Parse("convert a ./-");
  ASSERT_OK(file);
  EXPECT_FALSE(WritesToStandardOutput(*file));
}

TEST(CommandLine, VerifyWorkersHaveRecords) {
  ASSERT_OK_AND_ASSIGN(CommandLine line,
                       Parse("verify a --share 1/3 --records d --wait"));
  EXPECT_TRUE(IsShared(line));
  EXPECT_EQ(line.work.records, "d");
  EXPECT_THAT(line.paths, ElementsAre("a"));
  ASSERT_OK_AND_ASSIGN(line, Parse("workers --records d --wait"));
  EXPECT_THAT(line.paths, ElementsAre("d"));
}

TEST(CommandLine, ParsesAgainEachTime) {
  EXPECT_OK(Parse("inspect --json a"));
  ASSERT_OK_AND_ASSIGN(const CommandLine line, Parse("verify b"));
  EXPECT_FALSE(line.json);
  EXPECT_THAT(line.paths, ElementsAre("b"));
}

TEST(CommandLine, KnowsHelpAndVersion) {
  for (const char* words : {"--help", "-h", "help"}) {
    ASSERT_OK_AND_ASSIGN(const CommandLine line, Parse(words));
    EXPECT_EQ(line.action, CommandLine::Action::kHelp);
    EXPECT_EQ(line.verb, std::nullopt);
  }
  for (const char* words :
       {"convert --help", "convert -h", "help convert", "convert x --help"}) {
    ASSERT_OK_AND_ASSIGN(const CommandLine line, Parse(words));
    EXPECT_EQ(line.action, CommandLine::Action::kHelp);
    EXPECT_EQ(line.verb, Verb::kConvert);
  }
  ASSERT_OK_AND_ASSIGN(const CommandLine licenses, Parse("--licenses"));
  EXPECT_EQ(licenses.action, CommandLine::Action::kLicenses);
  for (const char* words : {"--version", "-V", "version"}) {
    ASSERT_OK_AND_ASSIGN(const CommandLine line, Parse(words));
    EXPECT_EQ(line.action, CommandLine::Action::kVersion);
  }
  ASSERT_OK_AND_ASSIGN(const CommandLine man, Parse("man"));
  EXPECT_EQ(man.action, CommandLine::Action::kManPage);
  ASSERT_OK_AND_ASSIGN(const CommandLine completion, Parse("completion fish"));
  EXPECT_EQ(completion.action, CommandLine::Action::kCompletion);
  EXPECT_THAT(completion.paths, ElementsAre("fish"));
}

TEST(CommandLine, ParsesHowMuchToList) {
  ASSERT_OK_AND_ASSIGN(const CommandLine line,
                       Parse("inspect x --depth 3 --limit 20"));
  EXPECT_EQ(line.inspect.depth, 3u);
  EXPECT_EQ(line.inspect.limit, 20u);
  EXPECT_FALSE(line.inspect.all);
}

struct Refusal {
  const char* words;
  const char* message;
};

class CommandLineRefuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(CommandLineRefuses, WithOneHelpfulLine) {
  EXPECT_THAT(Parse(GetParam().words),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(GetParam().message), HasSubstr("try "),
                             HasSubstr("--help"), Not(HasSubstr("\n")))))
      << GetParam().words;
}

INSTANTIATE_TEST_SUITE_P(
    Verbs, CommandLineRefuses,
    ::testing::Values(
        Refusal{"", "the verb is missing"}, Refusal{"--json", "is not a verb"},
        Refusal{"isnpect x", "did you mean 'inspect'"},
        Refusal{"dcp-to-torch a b", "did you mean 'dcp_to_torch'"},
        Refusal{"frobnicate x", "expected inspect, verify"},
        Refusal{"help konvert", "did you mean 'convert'"},
        Refusal{"inspect", "requires PATH, got 0 paths"},
        Refusal{"verify a b", "requires PATH, got 2 paths"},
        Refusal{"verify -", "'./-' is a file called '-'"},
        Refusal{"verify a --workers", "give --records"},
        Refusal{"verify a --share 0/2 --records d --server h:1",
                "leave out --server"},
        Refusal{"verify a --records d", "require --workers"},
        Refusal{"workers a --records d", "got 2 paths"},
        Refusal{"convert - a", "'./-' is a file called '-'"},
        Refusal{"convert - -", "not from standard input"},
        Refusal{"torch_to_dcp a -", "output of a directory"},
        Refusal{"convert a - --to dcp", "DCP is a directory"},
        Refusal{"convert a - --json", "--json cannot be used"},
        Refusal{"convert a - --server h:1", "leave out --server"},
        Refusal{"convert a b --server h:1 --workers",
                "a server does the share of --share"},
        Refusal{"inspect x --server h:1,h:2",
                "several servers share a convert"},
        Refusal{"convert a b --server h:1,h:2 --share 0/2", "name one server"},
        Refusal{"convert a", "requires SRC DST, got 1 path"}));

INSTANTIATE_TEST_SUITE_P(
    Options, CommandLineRefuses,
    ::testing::Values(
        Refusal{"inspect x --jsn", "did you mean '--json'"},
        Refusal{"inspect x --depth 0", "--depth: '0' is not a number from 1"},
        Refusal{"inspect x --limit -1", "'-1' is not a number from 1"},
        Refusal{"inspect x --all --depth 2", "give only one of the two"},
        Refusal{"completion csh", "requires a shell: bash, fish, zsh"},
        Refusal{"completion", "requires a shell: bash, fish, zsh"},
        Refusal{"inspect x --quux", "unknown option '--quux'"},
        Refusal{"inspect x -Q", "unknown option '-Q'"},
        Refusal{"inspect x -q", "'-q': did you mean '--progress none'?"},
        Refusal{"convert a b --force", "did you mean '--overwrite'?"},
        Refusal{"convert a b --dry-run", "did you mean '--plan'?"},
        Refusal{"convert a b -n", "did you mean '--plan'?"},
        Refusal{"convert a b --dtype bf16", "did you mean '--cast'?"},
        Refusal{"convert a -o b", "dcp-convert convert SRC DST"},
        Refusal{"convert a b --quiet", "did you mean '--progress none'?"},
        Refusal{"ls x", "did you mean 'inspect'?"},
        Refusal{"info x", "did you mean 'inspect'?"},
        Refusal{"check x", "did you mean 'verify'?"},
        Refusal{"convert a b --max 5", "ambiguous: --max-shard-size, "},
        Refusal{"inspect x --json=yes", "takes no value"},
        Refusal{"inspect x --tensors", "requires a value: GLOB"},
        Refusal{"verify x --mesh shard=4",
                "--mesh is not an option of verify but of convert, reshard"},
        Refusal{"consolidate a b.pt --mesh shard=4", "not an option of consol"},
        Refusal{"reshard a b --to pt", "--to is not an option of reshard"}));

INSTANTIATE_TEST_SUITE_P(
    Values, CommandLineRefuses,
    ::testing::Values(
        Refusal{"convert a b --max-memory 15MiB", "'15MiB' is less than"},
        Refusal{"convert a b --max-memory lots", "'lots'"},
        Refusal{"convert a b --max-shard-size 0", "'0' is not 1 byte"},
        Refusal{"convert a b --lanes 0", "'0' is not a number from 1 to 256"},
        Refusal{"convert a b --lanes 257", "from 1 to 256"},
        Refusal{"convert a b --lanes two", "'two'"},
        Refusal{"convert a b --to onnx",
                "not dcp, safetensors, pt or accelerate"},
        Refusal{"convert a b --direct maybe", "auto, on or off"},
        Refusal{"inspect a --from fsdp3", "'fsdp3' is not dcp, safetensors,"},
        Refusal{"inspect a --weights half", "master or low"},
        Refusal{"inspect a --optimizer-names mine", "stored, torch or order"},
        Refusal{"convert a b --part all", "model, optimizer or extra"},
        Refusal{"convert a b --cast float7", "float7"},
        Refusal{"convert a b --cast *.w=", "--cast"},
        Refusal{"convert a b --rename=", "not a rule"},
        Refusal{"convert a b --include=", "not a pattern"},
        Refusal{"inspect a --rank -1", "not a rank"},
        Refusal{"inspect a --progress fast", "auto, plain, json or none"},
        Refusal{"verify a --sample 0", "percentage above 0"},
        Refusal{"verify a --sample 101", "up to 100"},
        Refusal{"verify a --sample nan", "percentage"},
        Refusal{"reshard a b --mesh shard=0", "--mesh"},
        Refusal{"reshard a b --mesh shard=2 --place S(0)", "GLOB=PLACEMENTS"},
        Refusal{"reshard a b --mesh shard=2 --place *=Q", "--place"}));

INSTANTIATE_TEST_SUITE_P(
    Combinations, CommandLineRefuses,
    ::testing::Values(
        Refusal{"reshard a b", "reshard requires --mesh"},
        Refusal{"reshard a b.pt --mesh shard=2", "use consolidate"},
        Refusal{"convert a b --place *=R", "--place requires --mesh"},
        Refusal{"convert a b.pt --mesh shard=2", "the output is pt"},
        Refusal{"convert a b --to safetensors --mesh shard=2",
                "the output is safetensors"},
        Refusal{"reshard a b --mesh dp=2,tp=2 --place *=R",
                "has 1 placements, but the mesh dp=2,tp=2 has 2"},
        Refusal{"consolidate a b", "does not tell the format"}));

TEST(CommandLine, SampleTakesAPercentSign) {
  ASSERT_OK_AND_ASSIGN(const CommandLine line, Parse("verify a --sample 2.5%"));
  EXPECT_EQ(line.verify.sample_percent, 2.5);
}

TEST(CommandLine, ParsesEveryServerOption) {
  ASSERT_OK_AND_ASSIGN(
      const CommandLine line,
      Parse("verify a --server h:1 --tls --tls-ca ca --tls-cert c --tls-key k "
            "--token-file t"));
  EXPECT_EQ(line.server.address, "h:1");
  EXPECT_TRUE(line.server.tls);
  EXPECT_EQ(line.server.ca_file, "ca");
  EXPECT_EQ(line.server.cert_file, "c");
  EXPECT_EQ(line.server.key_file, "k");
  EXPECT_EQ(line.server.token_file, "t");
}

TEST(CommandLine, ServerDefaultsToTheEnvironment) {
  ASSERT_OK_AND_ASSIGN(CommandLine line,
                       ParseCommandLine({"verify", "a"}, "env:1"));
  EXPECT_EQ(line.server.address, "env:1");
  ASSERT_OK_AND_ASSIGN(
      line, ParseCommandLine({"verify", "a", "--server", "h:1"}, "env:1"));
  EXPECT_EQ(line.server.address, "h:1");
}

TEST(CommandLine, JobsRequireAServer) {
  ASSERT_OK_AND_ASSIGN(const CommandLine line,
                       Parse("jobs wait operations/7 --server h:1"));
  EXPECT_EQ(line.verb, Verb::kJobs);
  EXPECT_THAT(line.paths, ElementsAre("wait", "operations/7"));
  const std::pair<const char*, const char*> wrong[] = {
      {"jobs list", "requires --server"},
      {"jobs --server h:1", "'' is not list"},
      {"jobs stop --server h:1", "'stop' is not list"},
      {"jobs wait --server h:1", "requires one JOB"},
      {"jobs list x --server h:1", "takes no further arguments"},
      {"verify a --tls", "require --server"},
      {"verify a --server h:1 --direct on", "the server decides about"},
      {"convert a b --server h:1 --lanes 2", "the server decides about"},
  };
  for (const auto& [words, message] : wrong) {
    EXPECT_THAT(Parse(words), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr(message)))
        << words;
  }
}

}  // namespace
}  // namespace dcp::tools
