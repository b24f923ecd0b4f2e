// SPDX-License-Identifier: Apache-2.0

#include "tools/options/verb_options.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp::tools {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum class Verb : uint8_t { kRead, kWrite };

using ::dcp::testing::kInvalid;
constexpr uint32_t kRead = VerbBit(Verb::kRead);
constexpr uint32_t kWrite = VerbBit(Verb::kWrite);

constexpr VerbRow kVerbs[] = {
    {kRead, "read", "SRC", "read a file", "Reads.\n", "tool read a\n"},
    {kWrite, "write", "SRC DST", "write a file", "Writes.\n",
     "tool write a \\\n  b\n"},
};

constexpr Habit kHabits[] = {
    {"force", "--overwrite"}, {"f", "--overwrite"},
    {"quiet", "--to none"},   {"o", "DST"},
    {"cat", "read"},
};

VerbTool Tool() {
  return {
      .name = "tool",
      .verbs = kVerbs,
      .other_words = {"help"},
      .habits = kHabits,
      .options = {{"to", "FORMAT", kWrite, "the format"},
                  {"output-file", "FILE", kWrite, "where to\nwrite", true},
                  {"overwrite", nullptr, kWrite, "replace it"},
                  {"out", "FILE", kRead, "where to print"},
                  {"help", nullptr, kRead | kWrite, "print this"}},
      .syntax = {.abbreviations = true},
  };
}

struct Parsed {
  std::vector<std::string> options;
  std::vector<std::string> operands;
};

absl::StatusOr<Parsed> Parse(const VerbTool& tool, Verb verb,
                             const std::vector<std::string>& args) {
  Parsed parsed;
  absl::StatusOr<std::vector<std::string>> operands =
      ParseVerbOptions(tool, kVerbs[static_cast<size_t>(verb)], args,
                       [&](size_t option, absl::string_view value) {
                         if (value == "bad")
                           return absl::InvalidArgumentError("it is bad");
                         parsed.options.push_back(absl::StrCat(
                             tool.options[option].name, "=", value));
                         return absl::OkStatus();
                       });
  if (!operands.ok()) return operands.status();
  parsed.operands = *operands;
  return parsed;
}

TEST(VerbOptions, AppliesInOrderAndReturnsTheRest) {
  ASSERT_OK_AND_ASSIGN(const Parsed parsed, Parse(Tool(), Verb::kWrite,
                                                  {"a", "--to=x", "b", "--outp",
                                                   "y", "-h", "--", "--to"}));
  EXPECT_THAT(parsed.options, ElementsAre("to=x", "output-file=y", "help="));
  EXPECT_THAT(parsed.operands, ElementsAre("a", "b", "--to"));
}

TEST(VerbOptions, MistakesNameTheHelpToRead) {
  const struct {
    Verb verb;
    std::string word;
    std::string message;
  } cases[] = {
      {Verb::kRead, "--to=x", "--to is not an option of read but of write"},
      // This is not an abbreviation for --output-file.
      {Verb::kWrite, "--out=x", "--out is not an option of write but of read"},
      {Verb::kWrite, "--o=x", "'--o' is ambiguous: --output-file, --overwrite"},
      {Verb::kWrite, "--overwirte", "did you mean '--overwrite'?"},
      {Verb::kWrite, "--quux", "unknown option '--quux' (try"},
      {Verb::kWrite, "--overwrite=1", "--overwrite takes no value: '1'"},
      {Verb::kWrite, "--outp", "--output-file requires a value: FILE"},
      {Verb::kWrite, "--to=bad", "--to: it is bad"},
      {Verb::kWrite, "-q", "unknown option '-q'"},
      {Verb::kWrite, "--force", "'--force': did you mean '--overwrite'?"},
      {Verb::kWrite, "-f", "'-f': did you mean '--overwrite'?"},
      {Verb::kRead, "--force", "unknown option '--force' (try"},
      {Verb::kWrite, "--quiet", "did you mean '--to none'?"},
      {Verb::kWrite, "-o", "DST is a word of its own: tool write SRC DST"},
      {Verb::kRead, "-o", "unknown option '-o' (try"},
  };
  for (const auto& c : cases) {
    const absl::Status status = Parse(Tool(), c.verb, {c.word}).status();
    EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr(c.message)));
    EXPECT_THAT(status,
                StatusIs(kInvalid, HasSubstr(absl::StrCat(
                                       "(try tool ",
                                       kVerbs[static_cast<size_t>(c.verb)].name,
                                       " --help)"))));
  }
}

TEST(VerbOptions, ShortWordsCanBeOperands) {
  VerbTool tool = Tool();
  tool.short_words_are_operands = true;
  ASSERT_OK_AND_ASSIGN(const Parsed parsed,
                       Parse(tool, Verb::kRead, {"-q", "-h"}));
  EXPECT_THAT(parsed.operands, ElementsAre("-q"));
  EXPECT_THAT(parsed.options, ElementsAre("help="));
}

TEST(VerbOptions, VerbsAreFoundOrSuggested) {
  EXPECT_EQ(FindVerb(Tool(), "write"), &kVerbs[1]);
  EXPECT_EQ(FindVerb(Tool(), "help"), nullptr);
  EXPECT_THAT(UnknownVerb(Tool(), "raed"),
              StatusIs(kInvalid, HasSubstr("'raed': did you mean 'read'? (try "
                                           "tool --help)")));
  EXPECT_THAT(UnknownVerb(Tool(), "cat"),
              StatusIs(kInvalid, HasSubstr("did you mean 'read'?")));
  EXPECT_THAT(UnknownVerb(Tool(), "frobnicate"),
              StatusIs(kInvalid, HasSubstr("expected read, write, help")));
  EXPECT_THAT(VerbsThatTake(Tool(), Tool().options[4]),
              ElementsAre("read", "write"));
}

TEST(VerbOptions, HelpHasTheOptionsOfTheVerb) {
  std::string text;
  AppendVerbOptions(Tool(), kVerbs[1], 20, text);
  EXPECT_EQ(text,
            "  --to FORMAT       the format\n"
            "  --output-file FILE...\n"
            "                    where to\n"
            "                    write\n"
            "  --overwrite       replace it\n"
            "  --help            print this\n");
  text.clear();
  AppendExamples(kVerbs[1], text);
  EXPECT_EQ(text, "  tool write a \\\n    b\n");
}

}  // namespace
}  // namespace dcp::tools
