// SPDX-License-Identifier: Apache-2.0

#include "config/dialects/fields/key_table.h"

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "config/dialects/fields/references.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/config/reading.h"

namespace fsdp::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr KeyRow kOuter[] = {
    {"steps", kIntoLoop<&LoopConfig::steps, 1>},
    {"older_steps", kIntoLoop<&LoopConfig::steps, 1>},
    {"compile", IgnoreOn, "modules run as they are"},
    {"pipeline", Refuse, "there are no stages"},
};
constexpr KeyRow kInner[] = {
    {"shards", IntoMesh<&MeshConfig::data_parallel_shard_degree, -1>},
    {"dtype", kIntoPrecision<&PrecisionConfig::param_dtype>},
    {"frees", IntoLayerReshard},
    {"end", IntoMinimumRate},
};
constexpr KeyMap kMaps[] = {{"", kOuter, "they are for data"}, {"a.b", kInner}};

Reading ReadMaps(absl::string_view text) {
  const auto read = [](const Node& root, TrainConfig& config,
                       Findings& findings) {
    config.loop.lr = std::optional(0.5);
    ReadKeyMaps(root, kMaps, config, findings);
  };
  return ReadWith(read, "run.yaml", Syntax::kYaml, text);
}

TEST(KeyTable, RowsSelectTheSetting) {
  const Reading reading = ReadMaps(
      "steps: 5\nolder_steps: 6\na: {c: 1, b: {shards: 4, dtype: bf16, "
      "frees: true, end: 0.1}}\n");
  EXPECT_THAT(reading.findings, IsEmpty());
  EXPECT_EQ(**reading.config.loop.steps, 6);
  EXPECT_EQ(*reading.config.mesh.data_parallel_shard_degree, 4);
  EXPECT_EQ(**reading.config.precision.param_dtype, dcp::DType::kBFloat16);
  EXPECT_EQ(*reading.config.sharding.reshard_after_forward, ReshardSetting());
  EXPECT_DOUBLE_EQ((*reading.config.loop.lr_schedule)->min_factor, 0.2);
}

TEST(KeyTable, ReportsUnknownKeys) {
  EXPECT_THAT(
      ReadMaps("other: 1\nstepz: 2\na: {b: {shard: 1}}\n").findings,
      ElementsAre("problem run.yaml:2: stepz is not known; did you mean steps?",
                  "ignored run.yaml:1: has keys without effect here (other): "
                  "they are for data",
                  "problem run.yaml:3: a.b.shard is not known; did you mean "
                  "shards?"));
}

TEST(KeyTable, DisabledSwitchesHaveNoFinding) {
  EXPECT_THAT(ReadMaps("compile: false\npipeline: 1\n").findings, IsEmpty());
  EXPECT_THAT(ReadMaps("compile: null\npipeline: false\n").findings, IsEmpty());
  EXPECT_THAT(ReadMaps("compile: {mode: a}\npipeline: 2\n").findings,
              ElementsAre(HasSubstr("compile has no effect: modules run"),
                          HasSubstr("pipeline is 2, which is not supported")));
}

TEST(KeyTable, ReportsBadValues) {
  EXPECT_THAT(ReadMaps("steps: 0\na: {b: {shards: 0, dtype: int8}}\n").findings,
              ElementsAre(HasSubstr("steps is 0, not a whole number of at "
                                    "least 1"),
                          HasSubstr("a.b.shards is 0, not -1 or a number"),
                          HasSubstr("a.b.dtype is 'int8', not float32")));
  EXPECT_THAT(ReadMaps("a: 3\n").findings, IsEmpty());
  EXPECT_THAT(ReadMaps("a: {b: 3}\n").findings,
              ElementsAre(HasSubstr("a.b is 3, not a map of keys")));
}

TEST(KeyTable, NullWordsAreNull) {
  Findings findings;
  const Node root = WithNullWords(ParseDocument(
      "run.toml", "a = 'None'\nb = ['none', 'x']\n", Syntax::kToml, findings));
  EXPECT_EQ(root.Find("a")->kind, Node::Kind::kNull);
  EXPECT_EQ(root.Find("b")->items[0].kind, Node::Kind::kNull);
  EXPECT_EQ(root.Find("b")->items[1].text, "x");
}

// The text at `key` after references are resolved.
std::string Resolved(absl::string_view text, absl::string_view key) {
  Findings findings;
  return ResolveReferences(
             ParseDocument("run.yaml", text, Syntax::kYaml, findings))
      .Find(key)
      ->text;
}

TEST(References, WorkWithinTexts) {
  EXPECT_EQ(
      Resolved("name: n\nsub: {k: 3}\ndir: runs/${name}/${sub.k}/x\n", "dir"),
      "runs/n/3/x");
  EXPECT_EQ(Resolved("name: n\ndir: runs/${name}\nlogs: ${dir}/logs\n", "logs"),
            "runs/n/logs");
  EXPECT_EQ(Resolved("name: n\ndir: runs/${name}\nlogs: ${dir}\n", "logs"),
            "runs/n");
}

TEST(References, StayWithoutATarget) {
  for (const char* text :
       {"a: x/${none}", "a: x/${a", "a: ${oc.select:b,1}/x", "a: y/${a}",
        "a: x/${b}\nb: y/${a}", "a: x/${b}\nb: {c: 1}"}) {
    EXPECT_THAT(Resolved(text, "a"), HasSubstr("${")) << text;
  }
}

}  // namespace
}  // namespace fsdp::config
