// SPDX-License-Identifier: Apache-2.0

#include "document/document.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dcp::document {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Repeat(absl::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) absl::StrAppend(&all, text);
  return all;
}

std::string KindName(Node::Kind kind) {
  constexpr const char* kNames[] = {"null",   "bool", "integer", "real",
                                    "string", "list", "map"};
  return kNames[static_cast<int>(kind)];
}

// One line per value: "2:3 a.b integer 7".
void Dump(const Node& node, std::vector<std::string>& lines) {
  lines.push_back(absl::StrCat(node.place.line, ":", node.place.column, " ",
                               node.place.key, " ", KindName(node.kind),
                               node.is_scalar() ? " " : "", node.text));
  for (const Node& item : node.items) Dump(item, lines);
  for (const auto& [key, value] : node.entries) Dump(value, lines);
}

std::vector<std::string> Dumped(absl::string_view text, Syntax syntax) {
  std::vector<Problem> problems;
  std::vector<std::string> lines;
  Dump(Parse("run", text, syntax, problems), lines);
  for (const Problem& problem : problems) lines.push_back(to_string(problem));
  return lines;
}

// The problems in a text, one per line.
std::string Problems(absl::string_view text, Syntax syntax) {
  std::vector<Problem> problems;
  (void)Parse("run", text, syntax, problems);
  return absl::StrJoin(problems, "\n",
                       [](std::string* out, const Problem& problem) {
                         out->append(to_string(problem));
                       });
}

TEST(Document, YamlKnowsPlacesAndKinds) {
  EXPECT_THAT(Dumped("a: 1\nb:\n  c: [x, 'yes']\n  d: yes\n", Syntax::kYaml),
              ElementsAre("1:1  map", "1:4 a integer 1", "3:3 b map",
                          "3:6 b.c list", "3:7 b.c[0] string x",
                          "3:10 b.c[1] string yes", "4:6 b.d bool yes"));
}

TEST(Document, JsonKnowsPlacesAndKinds) {
  EXPECT_THAT(
      Dumped("{\"a\": 1,\n \"b\" : {\"c\":[1.50,\"x\"] , \"d\"\n"
             ":true}, \"e\":{},\"f\":-2e3}",
             Syntax::kJson),
      ElementsAre("1:1  map", "1:7 a integer 1", "2:8 b map", "2:13 b.c list",
                  "2:14 b.c[0] real 1.50", "2:19 b.c[1] string x",
                  "3:2 b.d bool true", "3:13 e map", "3:20 f real -2e3"));
}

TEST(Document, TomlKnowsPlacesAndKinds) {
  EXPECT_THAT(
      Dumped("[z]\nc = 1_000\n[a.b]\nd = 8e-4\ne = [\"x\", true]\n",
             Syntax::kToml),
      ElementsAre("1:1  map", "1:1 z map", "2:5 z.c integer 1000", "3:1 a map",
                  "3:1 a.b map", "4:5 a.b.d real 8e-4", "5:5 a.b.e list",
                  "5:6 a.b.e[0] string x", "5:11 a.b.e[1] bool true"));
}

TEST(Document, TomlReadsDatesAsStrings) {
  EXPECT_THAT(Dumped("a = 2024-05-06", Syntax::kToml),
              ElementsAre("1:1  map", "1:5 a string 2024-05-06"));
}

TEST(Document, TomlFindsNumbersAfterOtherLetters) {
  EXPECT_THAT(Dumped("a = { \"\xc3\xa4\xc3\xb6\" = \"\xc3\xbc\", b = 1.5 }",
                     Syntax::kToml),
              ElementsAre("1:1  map", "1:5 a map",
                          "1:14 a.\xc3\xa4\xc3\xb6 string \xc3\xbc",
                          "1:23 a.b real 1.5"));
}

TEST(Document, PlainScalarsFollowYaml11) {
  const std::vector<std::pair<std::string, Node::Kind>> cases = {
      {"yes", Node::Kind::kBool},        {"Off", Node::Kind::kBool},
      {"TRUE", Node::Kind::kBool},       {"yES", Node::Kind::kString},
      {"y", Node::Kind::kString},        {"~", Node::Kind::kNull},
      {"null", Node::Kind::kNull},       {"None", Node::Kind::kNull},
      {"", Node::Kind::kNull},           {"none", Node::Kind::kString},
      {"12", Node::Kind::kInteger},      {"-1_000", Node::Kind::kInteger},
      {"1.5", Node::Kind::kReal},        {".5", Node::Kind::kReal},
      {"5.", Node::Kind::kReal},         {"8e-4", Node::Kind::kReal},
      {"1.0e+3", Node::Kind::kReal},     {".inf", Node::Kind::kReal},
      {"1e", Node::Kind::kString},       {"1.2.3", Node::Kind::kString},
      {"+", Node::Kind::kString},        {"0x10", Node::Kind::kString},
      {"1:30", Node::Kind::kString},     {"bf16", Node::Kind::kString},
      {"'12'", Node::Kind::kString},     {"\"no\"", Node::Kind::kString},
      {"!!str 12", Node::Kind::kString}, {"!!int 12", Node::Kind::kInteger},
  };
  for (const auto& [text, kind] : cases) {
    std::vector<Problem> problems;
    const Node root =
        Parse("run", absl::StrCat("a: ", text, "\n"), Syntax::kYaml, problems);
    ASSERT_EQ(root.entries.size(), 1) << text;
    EXPECT_EQ(root.entries[0].value.kind, kind) << text;
    EXPECT_THAT(problems, IsEmpty()) << text;
  }
}

TEST(Document, YamlReadsAPythonDict) {
  EXPECT_THAT(Dumped("{\n    'fsdp': {'a': True,  # why\n 'b': None,},\n}\n",
                     Syntax::kYaml),
              ElementsAre("1:1  map", "2:13 fsdp map", "2:19 fsdp.a bool True",
                          "3:7 fsdp.b null None"));
}

TEST(Document, AliasesAreCopiesAtTheirOwnPath) {
  EXPECT_THAT(Dumped("a: &x {b: 1}\nc: *x\n", Syntax::kYaml),
              ElementsAre("1:1  map", "1:4 a map", "1:11 a.b integer 1",
                          "1:4 c map", "1:11 c.b integer 1"));
}

TEST(Document, MergesAddMissingKeys) {
  EXPECT_THAT(
      Dumped("a: &x {b: 1, c: 2}\nd:\n  <<: *x\n  c: 3\n", Syntax::kYaml),
      ElementsAre("1:1  map", "1:4 a map", "1:11 a.b integer 1",
                  "1:17 a.c integer 2", "3:3 d map", "4:6 d.c integer 3",
                  "1:11 d.b integer 1"));
}

TEST(Document, MergesPreferTheFirstOfTwoMaps) {
  EXPECT_THAT(
      Dumped("a: &x {b: 1}\nc: &y {b: 2, e: 3}\nd: {<<: [*x, *y]}\n",
             Syntax::kYaml),
      ::testing::IsSupersetOf({"1:11 d.b integer 1", "2:17 d.e integer 3"}));
}

TEST(Document, EmptyTextsAreEmptyMaps) {
  for (const Syntax syntax : {Syntax::kYaml, Syntax::kJson, Syntax::kToml}) {
    for (const absl::string_view text : {"", "\n", "  \n\n", "\xef\xbb\xbf"}) {
      std::vector<Problem> problems;
      const Node root = Parse("run", text, syntax, problems);
      EXPECT_EQ(root.kind, Node::Kind::kMap);
      EXPECT_THAT(root.entries, IsEmpty());
      EXPECT_THAT(problems, IsEmpty());
    }
  }
  EXPECT_EQ(Problems("# a comment\n", Syntax::kYaml), "");
  EXPECT_EQ(Problems("---\n", Syntax::kYaml), "");
  EXPECT_EQ(Problems("# a comment\n", Syntax::kToml), "");
}

TEST(Document, RefusesARootThatIsNotAMap) {
  EXPECT_EQ(Problems("- 1\n", Syntax::kYaml),
            "run:1: is not a map of keys and values");
  EXPECT_EQ(Problems("words", Syntax::kYaml),
            "run:1: is not a map of keys and values");
  EXPECT_EQ(Problems("[1]", Syntax::kJson),
            "run:1: is not a map of keys and values");
}

TEST(Document, ReportsDuplicateKeys) {
  EXPECT_EQ(Problems("a:\n  b: 1\n  c: 2\n  b: {d: 3}\n", Syntax::kYaml),
            "run:4: a.b is given twice");
  EXPECT_EQ(Problems("{\"a\": {\"b\": 1,\n\"b\": [2]}}", Syntax::kJson),
            "run:2: a.b is given twice");
  EXPECT_THAT(Problems("[a]\nb = 1\nb = 2\n", Syntax::kToml),
              HasSubstr("run:3: is not valid TOML: "));
}

TEST(Document, KeepsTheFirstOfTwoValues) {
  EXPECT_THAT(Dumped("a: 1\na: {b: 2}\nc: 3\n", Syntax::kYaml),
              ElementsAre("1:1  map", "1:4 a integer 1", "3:4 c integer 3",
                          "run:2: a is given twice"));
}

TEST(Document, LimitsProblemsForDuplicateKeys) {
  const std::string problems = Problems(Repeat("a: 1\n", 10000), Syntax::kYaml);
  EXPECT_THAT(problems, HasSubstr("run:21: a is given"));
  EXPECT_THAT(problems, HasSubstr("run:22: repeats many more keys"));
  EXPECT_THAT(problems, ::testing::Not(HasSubstr("run:23:")));
}

TEST(Document, ReportsTheLineWithATab) {
  EXPECT_EQ(Problems("a: 1\nb:\n\tc: 2\n", Syntax::kYaml),
            "run:3: is not valid YAML: the line is indented with a tab; write "
            "spaces");
}

TEST(Document, BrokenJsonHasAReasonAndAPlace) {
  std::vector<Problem> problems;
  Parse("run", "{\"a\": 1,\n  \"b\": }\n", Syntax::kJson, problems);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].place.line, 2);
  EXPECT_EQ(problems[0].place.column, 8);
  EXPECT_THAT(problems[0].text, HasSubstr("is not valid JSON: unexpected '}'"));
}

TEST(Document, BrokenTextsNameTheLine) {
  const std::vector<std::pair<std::string, Syntax>> cases = {
      {"a: 1\nb: [1, 2\n", Syntax::kYaml},
      {"a: 1\n\tb: 2\n", Syntax::kYaml},
      {"a: 'x\nb: 1\n", Syntax::kYaml},
      {"a: \"x\nb: 1\n", Syntax::kYaml},
      {"a: &x !!str\n  'it''s\n", Syntax::kYaml},
      {"a: \"x\\\"", Syntax::kYaml},
      {"a: *nowhere\n", Syntax::kYaml},
      {"a: !python/object:os.system x\n", Syntax::kYaml},
      {"a: !!python/tuple [x]\n", Syntax::kYaml},
      {"? [a]\n: 1\n", Syntax::kYaml},
      {"{a: 1}: 1\n", Syntax::kYaml},
      {"a: &x [*x]\n", Syntax::kYaml},
      {"a: 1\n---\na: 2\n", Syntax::kYaml},
      {"{\"a\": 1,}", Syntax::kJson},
      {"{\"a\": 01}", Syntax::kJson},
      {"{\"a\": 1} {\"a\": 1}", Syntax::kJson},
      {"{'a': 1}", Syntax::kJson},
      {"{\"a\": NaN}", Syntax::kJson},
      {"{\"a\"", Syntax::kJson},
      {"// no\n{}", Syntax::kJson},
      {"a = \n", Syntax::kToml},
      {"a = [1, 2\n", Syntax::kToml},
      {"[a]\n[a]\n", Syntax::kToml},
      {"a = 010\n", Syntax::kToml},
      {"[=]", Syntax::kToml},
      {"a\xcb\xb0 = 1", Syntax::kToml},
      {"a = {=", Syntax::kToml},
  };
  for (const auto& [text, syntax] : cases) {
    const std::vector<std::string> lines = Dumped(text, syntax);
    ASSERT_EQ(lines.size(), 2) << absl::StrJoin(lines, "; ");
    EXPECT_EQ(lines[0], "0:0  map");
    EXPECT_THAT(lines[1], ::testing::StartsWith("run:"));
  }
}

TEST(Document, RefusesBytesThatAreNotText) {
  const std::vector<std::string> cases = {std::string("a: 1\0", 5),
                                          "a: 1\x04",
                                          "a: \x1b[31m",
                                          "a: \x7f",
                                          "a: \xff",
                                          "a: \xc0\x80",
                                          "a: \xed\xa0\x80",
                                          "a: \xe2\x82",
                                          "a: \xf4\x90\x80\x80"};
  for (const std::string& text : cases) {
    for (const Syntax syntax : {Syntax::kYaml, Syntax::kJson, Syntax::kToml}) {
      EXPECT_THAT(Problems(text, syntax), HasSubstr(" at byte "));
    }
  }
}

TEST(Document, ShowsKeysWithoutControlCharacters) {
  EXPECT_THAT(Dumped("\"a\\e[31m\": 1\n", Syntax::kYaml),
              ElementsAre("1:1  map", "1:12 a\\x1b[31m integer 1"));
}

TEST(Document, RefusesAliasBombs) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string one = absl::StrCat("*a", i - 1);
    absl::StrAppend(&bomb, "a", i, ": &a", i, " [",
                    absl::StrJoin(std::vector<std::string>(9, one), ", "),
                    "]\n");
  }
  EXPECT_THAT(Problems(bomb, Syntax::kYaml), HasSubstr("has more than 65536"));
}

TEST(Document, CountsNestedAnchors) {
  const std::string items = Repeat("x, ", 2000);
  std::string text = "a: ";
  for (int i = 0; i < 60; ++i) absl::StrAppend(&text, "&a", i, " [");
  absl::StrAppend(&text, items, Repeat("]", 60), "\n");
  EXPECT_THAT(Problems(text, Syntax::kYaml), HasSubstr("has more than 65536"));
}

TEST(Document, RefusesDeepNesting) {
  for (const int depth : {64, 10000, 100000}) {
    const std::string brackets = Repeat("[", depth);
    EXPECT_NE(Problems(absl::StrCat("a: ", brackets), Syntax::kYaml), "");
    EXPECT_NE(Problems(Repeat("- ", depth), Syntax::kYaml), "");
    EXPECT_NE(Problems(Repeat("? ", depth), Syntax::kYaml), "");
    EXPECT_NE(Problems(Repeat("{a: ", depth), Syntax::kYaml), "");
    EXPECT_NE(Problems(Repeat("{", depth), Syntax::kYaml), "");
    EXPECT_NE(Problems(absl::StrCat("{\"a\":", brackets), Syntax::kJson), "");
    EXPECT_NE(Problems(Repeat("{\"a\":", depth), Syntax::kJson), "");
    EXPECT_NE(Problems(absl::StrCat("a = ", brackets), Syntax::kToml), "");
    EXPECT_NE(Problems(Repeat("a={", depth), Syntax::kToml), "");
    EXPECT_NE(
        Problems(absl::StrCat(Repeat("a.", depth), "a = 1"), Syntax::kToml),
        "");
    EXPECT_NE(
        Problems(absl::StrCat("[", Repeat("a.", depth), "a]"), Syntax::kToml),
        "");
  }
}

TEST(Document, ReadsTheDeepestAllowedNesting) {
  EXPECT_EQ(Problems(absl::StrCat("a: ", Repeat("[", 63), Repeat("]", 63)),
                     Syntax::kYaml),
            "");
  EXPECT_EQ(
      Problems(absl::StrCat("{\"a\":", Repeat("[", 63), Repeat("]", 63), "}"),
               Syntax::kJson),
      "");
}

TEST(Document, RefusesAliasesThatNestDeeper) {
  const std::string deep = absl::StrCat(Repeat("[", 60), Repeat("]", 60));
  EXPECT_THAT(Problems(absl::StrCat("a: &a ", deep, "\nb: [[[[*a]]]]\n"),
                       Syntax::kYaml),
              HasSubstr("nested deeper than 64"));
}

TEST(Document, RefusesTooManyValues) {
  const std::string many = Repeat("1,", 65600);
  EXPECT_THAT(Problems(absl::StrCat("a: [", many, "]"), Syntax::kYaml),
              HasSubstr("has more than 65536"));
  EXPECT_THAT(Problems(absl::StrCat("{\"a\": [", many, "1]}"), Syntax::kJson),
              HasSubstr("has more than 65536"));
  EXPECT_THAT(Problems(absl::StrCat("a = [", many, "]"), Syntax::kToml),
              HasSubstr("has more than 65536"));
}

TEST(Document, RefusesLongPaths) {
  const std::string key(600, 'k');
  EXPECT_THAT(Problems(absl::StrCat(key, ": 1"), Syntax::kYaml),
              HasSubstr("has a name of more than 512 bytes"));
}

TEST(Document, RefusesLargeTexts) {
  const std::string text(kMaxDocumentBytes + 1, '\n');
  EXPECT_EQ(Problems(text, Syntax::kYaml),
            "run: has 1048577 bytes, more than 1048576");
}

// Texts that could take a scanner quadratic time.
TEST(Document, HostileRunsEndQuickly) {
  const std::vector<std::string> units = {
      "a",     "'",       "\"",      "#",     "\n",    " \n",         "-",
      "- \n",  ": ",      "? ",      "a: \n", "[],",   "{},",         "&a ",
      "*a ",   "!",       "!!a ",    "%a\n",  "---\n", "...\n",       "|\n",
      ">\n",   "a: |\n ", ",",       "}",     "]",     "\\",          "'a' ",
      "a b ",  "a:",      "\t",      "@",     "`",     "<<",          "= ",
      "a=1\n", "[a]\n",   "[[a]]\n", "1e9",   ".",     "\xe2\x82\xac"};
  for (const std::string& unit : units) {
    const std::string text =
        Repeat(unit, static_cast<int>(kMaxDocumentBytes / 256 / unit.size()));
    for (const Syntax syntax : {Syntax::kYaml, Syntax::kJson, Syntax::kToml}) {
      (void)Problems(text, syntax);
      (void)Problems(absl::StrCat("a: ", text), syntax);
      (void)Problems(absl::StrCat("[", text), syntax);
    }
  }
}

}  // namespace
}  // namespace dcp::document
