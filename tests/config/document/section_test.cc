// SPDX-License-Identifier: Apache-2.0

#include "config/document/section.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The findings after `read` has read a map, one per line.
std::vector<std::string> FindingsOf(absl::string_view yaml,
                                    const std::function<void(Section&)>& read) {
  Findings findings;
  const Node root = ParseDocument("run", yaml, Syntax::kYaml, findings);
  Section section(root, findings);
  read(section);
  std::vector<std::string> lines;
  for (const Finding& finding : findings.list()) {
    lines.push_back(to_string(finding));
  }
  return lines;
}

Node Word(absl::string_view text) {
  Node node;
  node.kind = Node::Kind::kString;
  node.text = std::string(text);
  return node;
}

TEST(Section, ReadsBooleans) {
  for (const char* text : {"true", "True", "yes", "on", "1", "'T'", "Y"}) {
    Setting<bool> setting = false;
    EXPECT_THAT(
        FindingsOf(absl::StrCat("a: ", text),
                   [&](Section& s) { EXPECT_TRUE(s.Read("a", setting)); }),
        IsEmpty());
    EXPECT_TRUE(*setting) << text;
    EXPECT_EQ(setting.place()->key, "a");
  }
  for (const char* text : {"false", "No", "off", "0", "'f'", "n"}) {
    Setting<bool> setting = true;
    EXPECT_THAT(
        FindingsOf(absl::StrCat("a: ", text),
                   [&](Section& s) { EXPECT_TRUE(s.Read("a", setting)); }),
        IsEmpty());
    EXPECT_FALSE(*setting) << text;
  }
}

TEST(Section, SuggestsTheNearestValue) {
  const auto of = [](absl::string_view value) {
    return FindingsOf(absl::StrCat("a: ", value), [](Section& s) {
      Setting<int> setting;
      s.Read("a", Choices<int>{{"no", 0}, {"bf16", 1}, {"FULL_SHARD", 2}},
             setting);
    });
  };
  EXPECT_THAT(of("bf61"), ElementsAre(HasSubstr("; did you mean bf16?")));
  EXPECT_THAT(of("FULLSHARD"),
              ElementsAre(HasSubstr("; did you mean FULL_SHARD?")));
  EXPECT_THAT(of("nothing_like_it"),
              ElementsAre("run:1: a is 'nothing_like_it', not no, bf16 or "
                          "FULL_SHARD"));
}

TEST(Section, NamesUnresolvedReferences) {
  Setting<int64_t> number = 1;
  Setting<std::string> word;
  EXPECT_THAT(
      FindingsOf("a: ${variables.x}\nb: ${oc.env:HOME}/x\n",
                 [&](Section& s) {
                   EXPECT_FALSE(s.Read("a", IntegerRange{}, number));
                   EXPECT_FALSE(s.Read("b", word));
                 }),
      ElementsAre(HasSubstr("a is '${variables.x}', a reference that nothing"),
                  HasSubstr("b is '${oc.env:HOME}/x', a reference")));
}

TEST(Section, AbsentAndNullKeepTheSetting) {
  Setting<bool> flag = true;
  Setting<int64_t> number = 5;
  Setting<std::string> word = std::string("x");
  EXPECT_THAT(FindingsOf("a: null\nb: ~\nc:\n",
                         [&](Section& s) {
                           EXPECT_FALSE(s.Read("a", flag));
                           EXPECT_FALSE(s.Read("b", {}, number));
                           EXPECT_FALSE(s.Read("c", word));
                           EXPECT_FALSE(s.Read("d", word));
                           s.Finish();
                         }),
              IsEmpty());
  EXPECT_TRUE(*flag);
  EXPECT_FALSE(flag.place().has_value());
  EXPECT_EQ(*number, 5);
  EXPECT_EQ(*word, "x");
}

TEST(Section, WrongValuesAreReportedAndChangeNothing) {
  Setting<bool> flag = true;
  Setting<int64_t> number = 5;
  Setting<std::optional<double>> real;
  Setting<std::string> word;
  Setting<std::vector<std::string>> words;
  Setting<dcp::DType> dtype = dcp::DType::kFloat32;
  EXPECT_THAT(
      FindingsOf("a: maybe\nb: 9\nc: 1.5\nd: big\ne: [1]\nf: {x: 1}\ng: int8\n",
                 [&](Section& s) {
                   EXPECT_FALSE(s.Read("a", flag));
                   EXPECT_FALSE(s.Read("b", {.least = 1, .most = 8}, number));
                   EXPECT_FALSE(s.Read("c", IntegerRange{}, number));
                   EXPECT_FALSE(s.Read("d", {.least = 0.5}, real));
                   EXPECT_FALSE(s.Read("e", word));
                   EXPECT_FALSE(s.Read("f", words));
                   EXPECT_FALSE(s.Read("g", dtype));
                 }),
      ElementsAre("run:1: a is 'maybe', not true or false",
                  "run:2: b is 9, not a whole number from 1 to 8",
                  "run:3: c is 1.5, not a whole number of at least 0",
                  "run:4: d is 'big', not a number of at least 0.5",
                  "run:5: e is a list, not a string",
                  "run:6: f is not a list of strings",
                  "run:7: g is 'int8', not float32, bfloat16 or float16"));
  EXPECT_EQ(*number, 5);
}

TEST(Section, ReadsNumbers) {
  Setting<int64_t> a;
  Setting<std::optional<int64_t>> b;
  Setting<std::optional<double>> c;
  EXPECT_THAT(FindingsOf("a: -2\nb: 1e8\nc: 8e-4\n",
                         [&](Section& s) {
                           EXPECT_TRUE(s.Read("a", {.least = -2}, a));
                           EXPECT_TRUE(s.Read("b", IntegerRange{}, b));
                           EXPECT_TRUE(s.Read("c", RealRange{}, c));
                           s.Finish();
                         }),
              IsEmpty());
  EXPECT_EQ(*a, -2);
  EXPECT_EQ(*b, 100'000'000);
  EXPECT_EQ(*c, 8e-4);
  EXPECT_EQ(b.place()->line, 2);
}

TEST(Section, ReadsListsOfWords) {
  Setting<std::vector<std::string>> a;
  Setting<std::vector<std::string>> b;
  Setting<std::vector<std::string>> c;
  EXPECT_THAT(FindingsOf("a: [x, y]\nb: x , y,\nc: ''\n",
                         [&](Section& s) {
                           EXPECT_TRUE(s.Read("a", a));
                           EXPECT_TRUE(s.Read("b", b));
                           EXPECT_TRUE(s.Read("c", c));
                         }),
              IsEmpty());
  EXPECT_THAT(*a, ElementsAre("x", "y"));
  EXPECT_THAT(*b, ElementsAre("x", "y"));
  EXPECT_THAT(*c, IsEmpty());
}

TEST(Section, ReadsOneOfSomeWords) {
  const Choices<int> choices = {{"FULL", 1}, {"1", 1}, {"HALF", 2}};
  Setting<int> a;
  Setting<int> b;
  Setting<int> c = 9;
  EXPECT_THAT(FindingsOf("a: half\nb: 1\nc: FULLL\n",
                         [&](Section& s) {
                           EXPECT_TRUE(s.Read("a", choices, a));
                           EXPECT_TRUE(s.Read("b", choices, b));
                           EXPECT_FALSE(s.Read("c", choices, c));
                         }),
              ElementsAre("run:3: c is 'FULLL', not FULL, 1 or HALF; did you "
                          "mean FULL?"));
  EXPECT_EQ(*a, 2);
  EXPECT_EQ(*b, 1);
  EXPECT_EQ(*c, 9);
}

TEST(Section, ReportsTwoNamesForOneKey) {
  EXPECT_THAT(
      FindingsOf("fsdp_version: 2\nversion: 1\n",
                 [](Section& s) {
                   const Node* node = s.Find({"version", "fsdp_version"});
                   ASSERT_NE(node, nullptr);
                   EXPECT_EQ(node->text, "1");
                   s.Finish();
                 }),
      ElementsAre("run:1: fsdp_version is another name of version, which is "
                  "given as well; keep one of the two"));
}

TEST(Section, SuggestsTheNearestKey) {
  EXPECT_THAT(FindingsOf("fsdp_versoin: 2\nzzz: 1\n",
                         [](Section& s) {
                           s.Find("fsdp_version");
                           s.Finish();
                         }),
              ElementsAre("run:1: fsdp_versoin is not known; did you mean "
                          "fsdp_version?",
                          "run:2: zzz is not known"));
}

TEST(Section, LimitsProblemsForUnknownKeys) {
  std::string yaml;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&yaml, "k", i, ": 1\n");
  const std::vector<std::string> lines =
      FindingsOf(yaml, [](Section& s) { s.Finish(); });
  EXPECT_EQ(lines.size(), 21);
  EXPECT_THAT(lines.back(), HasSubstr("has 980 more keys"));
}

TEST(Section, LenientModeReportsUnknownKeysOnce) {
  EXPECT_THAT(
      FindingsOf("a1: 1\na2: 1\na3: 1\na4: 1\na5: 1\na6: 1\na7: 1\na8: 1\n",
                 [](Section& s) { s.FinishLenient("they are not ours"); }),
      ElementsAre("run:1: has keys without effect here (a1, a2, a3, a4, a5, a6 "
                  "and 2 more): they are not ours"));
}

TEST(Section, LenientModeReportsMisspeltKeys) {
  const auto read = [](Section& s) {
    s.Find("fsdp_config");
    s.Find("max_steps");
    s.Find("bf16");
    s.FinishLenient("of no use");
  };
  for (const char* slip : {"fsdp_confg", "fdsp_config", "fsdp_configs",
                           "FSDP-Config", "fsdp_konfig"}) {
    EXPECT_THAT(FindingsOf(absl::StrCat(slip, ": 1"), read),
                ElementsAre(HasSubstr("did you mean fsdp_config?")))
        << slip;
  }
  for (const char* other : {"save_steps", "fp16", "fsdp", "config"}) {
    EXPECT_THAT(FindingsOf(absl::StrCat(other, ": 1"), read),
                ElementsAre(HasSubstr("has keys without effect here")))
        << other;
  }
}

TEST(Section, LenientModeReportsKeysThatChangeTraining) {
  const auto read = [](Section& s) { s.FinishLenient("of no use"); };
  const auto expect = [&read](const char* key, const char* subject) {
    EXPECT_THAT(FindingsOf(absl::StrCat(key, ": 2"), read),
                ElementsAre(HasSubstr(absl::StrCat(
                    key, " is not known, and asks for ", subject, ":"))))
        << key;
  };
  for (const char* key :
       {"fsdp_plan", "fsdp2", "tp_size", "ep_degree", "sequence-parallel",
        "sharding", "deepspeed", "expert_model_parallel_size", "sharded_ddp"}) {
    expect(key, "sharding");
  }
  for (const char* key : {"optimizer", "optim_args", "Optimizers"}) {
    expect(key, "an optimizer");
  }
  for (const char* key : {"lr", "embedding_lr", "learning_rate_of_heads"}) {
    expect(key, "a learning rate");
  }
  // Values that enable nothing, and keys with similar names.
  for (const char* text :
       {"tp_size: 1", "fsdp: false", "optimizer:", "lr: 0", "optim: {}",
        "dataset_shard_num: 4", "vllm_tensor_parallel_size: 2", "tp_plan: 2",
        "num_shards: 2", "max_learning: 2"}) {
    EXPECT_THAT(FindingsOf(text, read),
                ElementsAre(HasSubstr("has keys without effect here")))
        << text;
  }
}

TEST(Section, IgnoredKeysHaveAReason) {
  EXPECT_THAT(FindingsOf("a: 1\nb:\n",
                         [](Section& s) {
                           s.Ignore("a", "there is one stream");
                           s.Ignore("b", "there is one stream");
                           s.Finish();
                         }),
              ElementsAre("run:1: a has no effect: there is one stream"));
}

TEST(Section, RefusedKeysAllowHarmlessValues) {
  const auto read = [](Section& s) {
    s.Refuse("degree", "1", "models are not cut into stages");
    s.Refuse("xla", "false", "there is no XLA");
    s.Finish();
  };
  for (const char* text :
       {"degree: 1", "degree: 1.0", "degree: null", "degree: {}", "degree: []",
        "degree: ''", "xla: False", "xla: no", "xla: 0", "xla: 'false'"}) {
    EXPECT_THAT(FindingsOf(text, read), IsEmpty()) << text;
  }
  EXPECT_THAT(FindingsOf("degree: 4\nxla: yes\n", read),
              ElementsAre("run:1: degree is 4, which is not supported: models "
                          "are not cut into stages",
                          "run:2: xla is yes, which is not supported: there is "
                          "no XLA"));
  EXPECT_THAT(FindingsOf("degree: true\nxla: {a: 1}\n", read),
              ElementsAre(HasSubstr("degree is true, which"),
                          HasSubstr("xla is a map, which")));
}

TEST(Section, RefusesANodeThatIsNotAMap) {
  Findings findings;
  Node node = Word("x");
  node.place.key = "fsdp_config";
  Section section(node, findings);
  EXPECT_EQ(section.Find("a"), nullptr);
  section.Finish();
  EXPECT_EQ(findings.ToStatus().message(),
            "fsdp_config is 'x', not a map of keys");
}

TEST(Section, NullIsAnEmptyMap) {
  Findings findings;
  const Node null;
  Section section(null, findings);
  EXPECT_EQ(section.Find("a"), nullptr);
  section.Finish();
  EXPECT_THAT(findings.list(), IsEmpty());
}

TEST(Section, ShortensLongValues) {
  Setting<bool> flag;
  std::string yaml = "a: \"\\e[31m";
  for (int i = 0; i < 100; ++i) absl::StrAppend(&yaml, "\xc3\xa4");
  const std::vector<std::string> lines = FindingsOf(
      absl::StrCat(yaml, "\""), [&](Section& s) { s.Read("a", flag); });
  ASSERT_EQ(lines.size(), 1);
  EXPECT_THAT(lines[0], HasSubstr("is '\\x1b[31m\xc3\xa4"));
  EXPECT_THAT(lines[0], HasSubstr("\xc3\xa4...', not true or false"));
  EXPECT_LT(lines[0].size(), 120);
}

TEST(Section, WholeNumbersMayBeWrittenInManyWays) {
  EXPECT_EQ(AsInteger(Word("12")), 12);
  EXPECT_EQ(AsInteger(Word("-1")), -1);
  EXPECT_EQ(AsInteger(Word("+3")), 3);
  EXPECT_EQ(AsInteger(Word("1_000")), 1000);
  EXPECT_EQ(AsInteger(Word("1e8")), 100'000'000);
  EXPECT_EQ(AsInteger(Word("2.0")), 2);
  EXPECT_EQ(AsInteger(Word("9223372036854775807")), INT64_MAX);
  EXPECT_EQ(AsInteger(Word("0")), 0);
  for (const char* text :
       {"", "x", "010", "1.5", "0x10", "9223372036854775808", "1e300", "nan",
        "inf", "_1", "1_", "1__0", " 1 2", "--1", "1:30", "1,5"}) {
    EXPECT_EQ(AsInteger(Word(text)), std::nullopt) << text;
  }
}

TEST(Section, NumbersMayBeWrittenInManyWays) {
  EXPECT_EQ(AsReal(Word("8e-4")), 8e-4);
  EXPECT_EQ(AsReal(Word("-.5")), -0.5);
  EXPECT_EQ(AsReal(Word("3")), 3);
  EXPECT_EQ(AsReal(Word("0.1")), 0.1);
  for (const char* text : {"", "x", "nan", ".inf", "1e999", "0x1p3", "e5"}) {
    EXPECT_EQ(AsReal(Word(text)), std::nullopt) << text;
  }
}

TEST(Section, DtypesHaveManyNames) {
  for (const char* name : {"float32", "fp32", "float", "torch.float32"}) {
    EXPECT_EQ(DtypeNamed(name), dcp::DType::kFloat32);
  }
  for (const char* name : {"bfloat16", "bf16", "torch.bfloat16", "BF16"}) {
    EXPECT_EQ(DtypeNamed(name), dcp::DType::kBFloat16);
  }
  for (const char* name : {"float16", "fp16", "half", "torch.half"}) {
    EXPECT_EQ(DtypeNamed(name), dcp::DType::kFloat16);
  }
  EXPECT_EQ(DtypeNamed("int8"), std::nullopt);
  EXPECT_EQ(DtypeNamed(""), std::nullopt);
}

}  // namespace
}  // namespace fsdp::config
