// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/options/help.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tools/dcp_convert/options/command_line_parser.h"
#include "tools/dcp_convert/options/completion.h"
#include "tools/dcp_convert/options/man_page.h"
#include "tools/dcp_convert/options/option_table.h"

namespace dcp::tools {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
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

TEST(Help, OfAVerbHasOptionsExamplesAndExitCodes) {
  for (const VerbRow& row : AllVerbs()) {
    const std::string help = VerbHelp(VerbForRow(row));
    EXPECT_THAT(help, AllOf(HasSubstr("Examples:"), HasSubstr("Exit codes:"),
                            HasSubstr(row.operands)));
    for (const auto& option : AllOptions()) {
      const bool takes = (option.verbs & row.bit) != 0;
      // A space, the end of a line or another letter follows the name.
      const bool named =
          absl::StrContains(help, absl::StrCat("  --", option.name, " ")) ||
          absl::StrContains(help, absl::StrCat("  --", option.name, "\n"));
      EXPECT_TRUE(named || !takes) << row.name << " --" << option.name;
    }
    ExpectFitsATerminal(help);
  }
}

// Splits like a shell, as far as the examples require.
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

TEST(Help, ExamplesParse) {
  for (const VerbRow& row : AllVerbs()) {
    const std::vector<std::string> commands =
        absl::StrSplit(row.examples, "dcp-convert ", absl::SkipEmpty());
    for (absl::string_view command : commands) {
      command = command.substr(0, command.find(" | "));
      EXPECT_OK(ParseCommandLine(ShellWords(command))) << command;
    }
  }
}

TEST(ManPage, HasEveryVerbAndOption) {
  const std::string page = ManPage();
  for (const VerbRow& row : AllVerbs()) {
    EXPECT_THAT(page, HasSubstr(absl::StrCat(".SS ", row.name, " ")));
  }
  for (const auto& row : AllOptions()) {
    const std::string name = absl::StrReplaceAll(row.name, {{"-", "\\-"}});
    EXPECT_THAT(page, HasSubstr(absl::StrCat(".B \\-\\-", name)));
  }
}

// troff would take a line of text that begins like this as a request.
TEST(ManPage, HasNoUnintendedRequests) {
  const std::vector<std::string> lines = absl::StrSplit(ManPage(), '\n');
  for (absl::string_view line : lines) {
    if (!absl::StartsWith(line, ".") && !absl::StartsWith(line, "'")) continue;
    const absl::string_view request = line.substr(0, line.find(' '));
    EXPECT_THAT(request, AnyOf(".TH", ".SH", ".SS", ".TP", ".B", ".PP", ".nf",
                               ".fi", ".br"))
        << line;
  }
}

TEST(Completion, KnowsEveryOptionAndChoice) {
  for (const absl::string_view shell : CompletionShells()) {
    const std::string script = CompletionScript(shell);
    for (const auto& row : AllOptions()) {
      EXPECT_THAT(script, HasSubstr(row.name)) << shell;
      if (row.choices != nullptr) {
        EXPECT_THAT(script, HasSubstr(row.choices)) << shell;
      }
    }
  }
}

TEST(Help, EachChoiceParses) {
  for (const auto& row : AllOptions()) {
    if (row.choices == nullptr) continue;
    for (absl::string_view choice : absl::StrSplit(row.choices, ' ')) {
      CommandLine line;
      EXPECT_OK(row.apply(choice, line)) << row.name << " " << choice;
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
