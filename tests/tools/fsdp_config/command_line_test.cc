// SPDX-License-Identifier: Apache-2.0

#include "tools/fsdp_config/command_line.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "config/dialect_table.h"
#include "config/write_config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tools/fsdp_config/command_line_parser.h"

namespace fsdp::tools {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::SizeIs;

absl::StatusOr<CommandLine> Parse(absl::string_view words) {
  const std::vector<std::string> args =
      absl::StrSplit(words, ' ', absl::SkipEmpty());
  return ParseCommandLine(args);
}

auto IsUsageError(const std::string& text, const std::string& help) {
  return StatusIs(absl::StatusCode::kInvalidArgument,
                  AllOf(HasSubstr(text), HasSubstr(help)));
}

TEST(FsdpConfigCommandLine, ParsesEveryOption) {
  ASSERT_OK_AND_ASSIGN(
      const CommandLine explain,
      Parse("explain a.toml --world-size 16 --local-world-size=4 --model m.pt "
            "--local-batch-size 2 --seq-len 512 --json --environment"));
  EXPECT_EQ(explain.verb, Verb::kExplain);
  EXPECT_EQ(explain.file, "a.toml");
  EXPECT_EQ(explain.world_size, 16);
  EXPECT_EQ(explain.local_world_size, 4);
  EXPECT_EQ(explain.model, "m.pt");
  EXPECT_EQ(explain.local_batch_size, 2);
  EXPECT_EQ(explain.seq_len, 512);
  EXPECT_TRUE(explain.json);
  EXPECT_TRUE(explain.environment);
  ASSERT_OK_AND_ASSIGN(
      const CommandLine convert,
      Parse("convert --to torchtitan --output-file b --overwrite -- --odd"));
  EXPECT_EQ(convert.to, ConfigDialect::kTorchTitan);
  EXPECT_EQ(convert.output_file, "b");
  EXPECT_TRUE(convert.overwrite);
  EXPECT_EQ(convert.file, "--odd");
}

TEST(FsdpConfigCommandLine, AcceptsAcceleratesSpellings) {
  ASSERT_OK_AND_ASSIGN(
      const CommandLine line,
      Parse("to-fsdp2 --config_file a.yaml --output_file=b.yaml --overwrite"));
  EXPECT_EQ(line.file, "a.yaml");
  EXPECT_EQ(line.output_file, "b.yaml");
}

TEST(FsdpConfigCommandLine, CheckAcceptsSeveralFiles) {
  ASSERT_OK_AND_ASSIGN(const CommandLine line, Parse("check a - --strict b"));
  EXPECT_EQ(line.files, (std::vector<std::string>{"a", "-", "b"}));
  EXPECT_TRUE(line.strict);
}

TEST(FsdpConfigCommandLine, NamesMistakes) {
  EXPECT_THAT(Parse(""), IsUsageError("VERB", "fsdp-config --help"));
  EXPECT_THAT(Parse("chekc a"),
              IsUsageError("did you mean 'check'?", "--help"));
  EXPECT_THAT(Parse("frobnicate a"),
              IsUsageError("expected check, explain, to-fsdp2, convert, init",
                           "--help"));
  EXPECT_THAT(Parse("check"),
              IsUsageError("FILE is missing", "fsdp-config check --help"));
  EXPECT_THAT(Parse("explain a b"),
              IsUsageError("'b' is a second one", "explain"));
  EXPECT_THAT(Parse("to-fsdp2 - --overwrite"),
              IsUsageError("standard input cannot be replaced", "to-fsdp2"));
  EXPECT_THAT(Parse("check a --jsno"),
              IsUsageError("did you mean '--json'?", "check"));
  EXPECT_THAT(
      Parse("check a --to composer"),
      IsUsageError("--to is not an option of check but of convert", "check"));
  EXPECT_THAT(Parse("check a --json=1"),
              IsUsageError("takes no value: '1'", "check"));
  EXPECT_THAT(Parse("explain a --world-size"),
              IsUsageError("requires a value: N", "explain"));
  EXPECT_THAT(Parse("explain a --world-size 0"),
              IsUsageError("'0' is not a number from 1", "explain"));
  EXPECT_THAT(Parse("explain a --world-size 99999999999999999999"),
              IsUsageError("is not a number from 1", "explain"));
  EXPECT_THAT(Parse("explain a --model="),
              IsUsageError("--model: '' is not a name", "explain"));
  EXPECT_THAT(Parse("init a"), IsUsageError("init reads no FILE", "init"));
  EXPECT_THAT(Parse("convert a"), IsUsageError("--to DIALECT", "convert"));
  EXPECT_THAT(Parse("convert a --to deepspeed"),
              IsUsageError("'deepspeed' is not accelerate", "convert"));
  for (const ConfigDialect dialect : all_dialects()) {
    const std::string words =
        absl::StrCat("convert a --to ", dialect_name(dialect));
    if (can_write(dialect)) {
      EXPECT_EQ(Parse(words)->to, dialect) << words;
      continue;
    }
    EXPECT_THAT(
        Parse(words),
        IsUsageError(absl::StrCat("configs of ", dialect_program(dialect),
                                  " can be read, but not written"),
                     "convert"));
  }
  EXPECT_THAT(Parse("convert a --to composer --overwrite"),
              IsUsageError("requires an --output-file", "convert"));
}

TEST(FsdpConfigCommandLine, HelpMayStandAnywhere) {
  for (const char* words :
       {"--help", "-h", "help", "check --help", "convert a -h"}) {
    ASSERT_OK_AND_ASSIGN(const CommandLine line, Parse(words));
    EXPECT_EQ(line.action, CommandLine::Action::kHelp) << words;
  }
  ASSERT_OK_AND_ASSIGN(const CommandLine licenses, Parse("--licenses"));
  EXPECT_EQ(licenses.action, CommandLine::Action::kLicenses);
  ASSERT_OK_AND_ASSIGN(const CommandLine version, Parse("--version"));
  EXPECT_EQ(version.action, CommandLine::Action::kVersion);
}

TEST(FsdpConfigHelp, DescribesEveryVerbInEightyColumns) {
  std::vector<std::string> pages = {GeneralHelp()};
  for (const Verb verb : {Verb::kCheck, Verb::kExplain, Verb::kToFsdp2,
                          Verb::kConvert, Verb::kInit}) {
    pages.push_back(VerbHelp(verb));
    EXPECT_THAT(pages.back(),
                AllOf(HasSubstr("Usage: fsdp-config "), HasSubstr("Options:"),
                      HasSubstr("Examples:\n  fsdp-config "),
                      HasSubstr("Exit codes:")));
  }
  for (const std::string& page : pages) {
    const std::vector<std::string> lines = absl::StrSplit(page, '\n');
    EXPECT_THAT(lines, Each(AllOf(SizeIs(Le(79u)), Not(EndsWith(" ")))));
  }
  EXPECT_THAT(GeneralHelp(),
              AllOf(HasSubstr("check"), HasSubstr("explain"),
                    HasSubstr("to-fsdp2"), HasSubstr("convert")));
  for (const ConfigDialect dialect : all_dialects()) {
    EXPECT_THAT(GeneralHelp(),
                HasSubstr(absl::StrCat("\n  ", dialect_program(dialect), " ")));
  }
}

}  // namespace
}  // namespace fsdp::tools
