#include "tools/help.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tools/option_table.h"

namespace dcp::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

void ExpectFitsATerminal(absl::string_view text) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST(Help, NamesEveryVerb) {
  for (const VerbRow& row : AllVerbs()) {
    EXPECT_THAT(GeneralHelp(),
                AllOf(HasSubstr(row.name), HasSubstr(row.summary)));
  }
  ExpectFitsATerminal(GeneralHelp());
}

TEST(Help, OfAVerbHasItsOptionsExamplesAndExitCodes) {
  for (const VerbRow& row : AllVerbs()) {
    const std::string help = VerbHelp(row.verb);
    EXPECT_THAT(help, AllOf(HasSubstr("Examples:"), HasSubstr("Exit codes:"),
                            HasSubstr(row.operands)));
    for (const OptionRow& option : AllOptions()) {
      const bool takes = (option.verbs & VerbBit(row.verb)) != 0;
      // A space, a line's end or another letter follows the name.
      const bool named =
          absl::StrContains(help, absl::StrCat("  --", option.name, " ")) ||
          absl::StrContains(help, absl::StrCat("  --", option.name, "\n"));
      EXPECT_TRUE(named || !takes) << row.name << " --" << option.name;
    }
    ExpectFitsATerminal(help);
  }
}

// Splits as a shell does, as far as the examples go.
std::vector<std::string> ShellWords(absl::string_view command) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false;
  for (char c : command) {
    if (c == '\'') {
      quoted = !quoted;
    } else if (!quoted && (c == ' ' || c == '\n' || c == '\\')) {
      if (!word.empty()) words.push_back(std::move(word));
      word.clear();
    } else {
      word.push_back(c);
    }
  }
  if (!word.empty()) words.push_back(word);
  return words;
}

TEST(Help, ItsExamplesAreCommandsThatParse) {
  for (const VerbRow& row : AllVerbs()) {
    const std::vector<std::string> commands =
        absl::StrSplit(row.examples, "dcp-convert ", absl::SkipEmpty());
    for (absl::string_view command : commands) {
      command = command.substr(0, command.find(" | "));
      EXPECT_OK(ParseCommandLine(ShellWords(command))) << command;
    }
  }
}

TEST(Help, VersionIsOneLine) {
  EXPECT_THAT(std::vector<std::string>(absl::StrSplit(VersionText(), '\n')),
              SizeIs(2));
  EXPECT_THAT(VersionText(), HasSubstr("dcp-convert "));
}

}  // namespace
}  // namespace dcp::tools
