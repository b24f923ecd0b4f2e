// SPDX-License-Identifier: Apache-2.0

#include "dcp/mapping/application/mapping.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr absl::string_view kText = R"(tessera-mapping: 1
name: test
model_types: [tiny]
config: {i: layers, v: vocab}
sides:
  a:
  b:
  c:
states: {a: "o.{param:**}.{slot:*}", b: "o.{param:**}.{slot:*}"}
drop: {a: ["l.{i}.cache"]}
rules:
- a: {embed: v c}
  b: {tokens: v c}
  c: {tokens: c v}
  copies: {b: [head]}
- a: l.{i}.w
  b: m.{i}.w
  c: n.{i}.w
)";

Mapping Sample() {
  absl::StatusOr<Mapping> mapping = ParseMapping(kText, "m.yaml");
  EXPECT_OK(mapping);
  return *std::move(mapping);
}

MappingTensor Tensor(std::string name, Dims shape = {2}) {
  return {.name = std::move(name),
          .dtype = DType::kFloat32,
          .shape = std::move(shape)};
}

std::vector<MappingTensor> Sources() {
  return {Tensor("l.0.w"), Tensor("l.1.w"), Tensor("embed", {3, 2})};
}

MapOptions Options() {
  return {.from = "a", .to = "b", .config = R"({"layers": 2, "vocab": 3})"};
}

std::vector<std::string> TensorNames(const MappedTensors& mapped) {
  std::vector<std::string> names;
  for (const MappingTensor& tensor : mapped.tensors) {
    names.push_back(tensor.name);
  }
  return names;
}

TEST(Mapping, HasNameTypesTextAndSides) {
  const Mapping mapping = Sample();
  EXPECT_EQ(mapping.name(), "test");
  EXPECT_THAT(mapping.model_types(), ElementsAre("tiny"));
  EXPECT_THAT(mapping.sides(), ElementsAre("a", "b", "c"));
  EXPECT_TRUE(mapping.file().FindSide("a")->states.has_value());
  EXPECT_FALSE(mapping.file().FindSide("c")->states.has_value());
  EXPECT_EQ(mapping.file().FindSide("d"), nullptr);
  EXPECT_EQ(mapping.text(), kText);
  EXPECT_EQ(mapping.file_name(), "m.yaml");
}

TEST(Mapping, DestinationsAreSortedAndReported) {
  ASSERT_OK_AND_ASSIGN(const MappedTensors mapped,
                       Sample().Map(Sources(), Options()));
  EXPECT_THAT(TensorNames(mapped),
              ElementsAre("head", "m.0.w", "m.1.w", "tokens"));
  EXPECT_EQ(mapped.tensors[3], Tensor("tokens", {3, 2}));
  ASSERT_THAT(mapped.pieces, SizeIs(4));
  for (uint32_t n = 0; n < 4; ++n) EXPECT_EQ(mapped.pieces[n].dst, n);
  EXPECT_EQ(mapped.pieces[0].src, 2U);
  EXPECT_EQ(mapped.pieces[1].src, 0U);
  EXPECT_THAT(mapped.copied, ElementsAre("head"));
  EXPECT_THAT(mapped.ties, IsEmpty());
  EXPECT_THAT(mapped.config, ElementsAre(Pair("layers", 2), Pair("vocab", 3)));
  ASSERT_THAT(mapped.rules, SizeIs(2));
  const RuleReport& report = mapped.rules[1];
  EXPECT_EQ(report.file, "m.yaml");
  EXPECT_EQ(report.line, 16);
  EXPECT_EQ(report.text, "l.{i}.w -> m.{i}.w");
  EXPECT_EQ(report.num_instances, 2U);
  EXPECT_EQ(report.num_sources, 2U);
  EXPECT_EQ(report.num_destinations, 2U);
  EXPECT_EQ(report.num_pieces, 2U);
  EXPECT_EQ(report.num_bytes, 16U);
  EXPECT_EQ(report.shapes, "[2]");
  EXPECT_EQ(report.rule_class, RuleClass::kBox);
  EXPECT_THAT(report.sources, ElementsAre(0, 1));
  EXPECT_THAT(report.destinations, ElementsAre(1, 2));
  EXPECT_EQ(mapped.rules[0].num_destinations, 2U);
}

TEST(Mapping, ReportsShapesAndHowElementsMove) {
  const struct {
    const char* a;  // both sides' terms
    const char* b;
    int64_t f;
    int64_t c;
    const char* shapes;
    RuleClass rule_class;
  } cases[] = {
      {"{w: f c}", "{v: f c}", 8, 6, "[8, 6]", RuleClass::kBox},
      {"{w: f c}", "{v: c f}", 8, 6, "[8, 6] -> [6, 8]", RuleClass::kStrided},
      {"{w: (f + f) c}", "[{x: f c}, {y: f c}]", 4, 6, "[8, 6] -> 2 x [4, 6]",
       RuleClass::kBox},
      {"{w: (f 2) c}", "{v: (2 f) c}", 4, 6, "[8, 6]", RuleClass::kStrided},
      // Every other row, which is whole, and every other element.
      {"{w: (f + f) c}", "{v: (f (1 + 1)) c}", 4, 6, "[8, 6]", RuleClass::kBox},
      {"{w: f (c + c)}", "{v: f (c (1 + 1))}", 8, 3, "[8, 6]",
       RuleClass::kStrided},
      // The source's rows and columns.
      {"{w: f c}", "{\"v.{f}\": c}", 8, 6, "[8, 6] -> 8 x [6]",
       RuleClass::kBox},
      {"{w: f c}", "{\"v.{c}\": f}", 8, 6, "[8, 6] -> 6 x [8]",
       RuleClass::kStrided},
      {"[{w: f c}, {=0: p c}]", "{v: (f + p) c}", 8, 6, "[8, 6] -> [10, 6]",
       RuleClass::kBox},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(absl::StrCat(each.a, " to ", each.b));
    ASSERT_OK_AND_ASSIGN(
        const Mapping mapping,
        ParseMapping(absl::StrCat("tessera-mapping: 1\nname: test\n"
                                  "params: {c: 6, f: 8, p: 2}\n"
                                  "sides: {a: , b: }\nrules:\n- a: ",
                                  each.a, "\n  b: ", each.b, "\n"),
                     "m.yaml"));
    ASSERT_OK_AND_ASSIGN(
        const MappedTensors mapped,
        mapping.Map({Tensor("w", {8, 6})},
                    {.from = "a",
                     .to = "b",
                     .settings = {{"f", each.f}, {"c", each.c}}}));
    ASSERT_THAT(mapped.rules, SizeIs(1));
    EXPECT_EQ(mapped.rules[0].shapes, each.shapes);
    EXPECT_EQ(mapped.rules[0].rule_class, each.rule_class);
  }
}

// The tensors in the middle belong to neither side.
TEST(Mapping, RulesThroughThePivotReportTheirOwnSide) {
  ASSERT_OK_AND_ASSIGN(const MappedTensors there,
                       Sample().Map(Sources(), Options()));
  MapOptions options = Options();
  options.from = "b";
  options.to = "c";
  ASSERT_OK_AND_ASSIGN(const MappedTensors mapped,
                       Sample().Map(there.tensors, options));
  ASSERT_THAT(mapped.rules, SizeIs(4));
  EXPECT_THAT(mapped.rules[0].sources, ElementsAre(3));
  EXPECT_THAT(mapped.rules[0].destinations, IsEmpty());
  EXPECT_EQ(mapped.rules[0].num_destinations, 1U);
  EXPECT_THAT(mapped.rules[2].sources, IsEmpty());
  EXPECT_THAT(mapped.rules[2].destinations, ElementsAre(2));
  EXPECT_EQ(mapped.rules[2].shapes, "[3, 2] -> [2, 3]");
  EXPECT_EQ(mapped.rules[2].rule_class, RuleClass::kStrided);
}

TEST(Mapping, SameInputInAnyOrderGivesTheSamePlan) {
  std::vector<MappingTensor> sources = Sources();
  ASSERT_OK_AND_ASSIGN(const MappedTensors first,
                       Sample().Map(sources, Options()));
  std::reverse(sources.begin(), sources.end());
  ASSERT_OK_AND_ASSIGN(const MappedTensors second,
                       Sample().Map(sources, Options()));
  EXPECT_EQ(first.tensors, second.tensors);
  for (size_t i = 0; i < first.pieces.size(); ++i) {
    EXPECT_EQ(first.pieces[i].src, 2 - second.pieces[i].src);
    EXPECT_EQ(first.pieces[i].loops, second.pieces[i].loops);
  }
}

TEST(Mapping, RefusesUnknownSides) {
  MapOptions options = Options();
  options.to = "d";
  EXPECT_THAT(Sample().Map(Sources(), options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has no side \"d\"; it has a, b, c")));
  options.to = "a";
  EXPECT_THAT(
      Sample().Map(Sources(), options),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a into itself")));
}

TEST(Mapping, ReportsScaledAndShiftedSources) {
  ASSERT_OK_AND_ASSIGN(
      const Mapping mapping,
      ParseMapping("tessera-mapping: 1\nname: t\n"
                   "sides: {a: , b: , c: , d: {of: b, spell: [[y, z]]}}\n"
                   "states: {a: \"{param:**}.{slot:*}\", b: "
                   "\"{param:**}.{slot:*}\"}\n"
                   "rules:\n- {a: x, b: y, c: w, add: {b: -1}, scale: {c: 2}}\n"
                   "- {a: n, b: m, c: k, d: l}\n",
                   "m.yaml"));
  std::vector<MappingTensor> sources = {Tensor("n"), Tensor("x")};
  MapOptions options = {.from = "a", .to = "b"};
  ASSERT_OK_AND_ASSIGN(const MappedTensors b, mapping.Map(sources, options));
  const Rescale plain;
  const Rescale less{.scale = 1, .add = -1};
  const Rescale twice{.scale = 2, .add = 0};
  EXPECT_THAT(b.rescaled, ElementsAre(RescaledSource{1, plain, less}));
  ASSERT_THAT(b.pieces, SizeIs(2));
  EXPECT_EQ(b.pieces[0].src, 0U);
  EXPECT_EQ(b.pieces[1].src, b.num_sources);
  EXPECT_EQ(b.OriginalSource(b.pieces[1].src), 1U);
  options = {.from = "b", .to = "c"};
  ASSERT_OK_AND_ASSIGN(const MappedTensors c, mapping.Map(b.tensors, options));
  EXPECT_THAT(c.rescaled, ElementsAre(RescaledSource{1, less, twice}));
  options.to = "d";
  ASSERT_OK_AND_ASSIGN(const MappedTensors d, mapping.Map(b.tensors, options));
  EXPECT_THAT(d.rescaled, IsEmpty());
  sources.push_back(Tensor("x.exp_avg"));
  options = {.from = "a", .to = "b"};
  EXPECT_THAT(mapping.Map(sources, options),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("m.yaml:6: the state of an optimizer")));
}

TEST(Mapping, UnmatchedSourcesAreAnErrorByDefault) {
  std::vector<MappingTensor> sources = Sources();
  sources.push_back(Tensor("extra"));
  sources.push_back(Tensor("l.1.cache"));
  sources.push_back(Tensor("l.2.w"));
  MapOptions options = Options();
  EXPECT_THAT(Sample().Map(sources, options),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("has no rule for 2 tensors: extra, l.2.w")));
  options.unmatched = MapOptions::Unmatched::kDrop;
  ASSERT_OK_AND_ASSIGN(const MappedTensors dropped,
                       Sample().Map(sources, options));
  EXPECT_THAT(dropped.dropped, ElementsAre("extra", "l.1.cache", "l.2.w"));
  EXPECT_THAT(dropped.tensors, SizeIs(4));
  options.unmatched = MapOptions::Unmatched::kKeep;
  ASSERT_OK_AND_ASSIGN(const MappedTensors kept,
                       Sample().Map(sources, options));
  EXPECT_THAT(kept.kept, ElementsAre("extra", "l.2.w"));
  EXPECT_THAT(kept.dropped, ElementsAre("l.1.cache"));
  EXPECT_THAT(kept.tensors, SizeIs(6));
  EXPECT_THAT(kept.pieces, SizeIs(6));
  sources.push_back(Tensor("m.0.w"));
  EXPECT_THAT(Sample().Map(sources, options),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("m.0.w is made twice")));
}

TEST(Mapping, MapsAPartOfACheckpoint) {
  std::vector<MappingTensor> sources = Sources();
  sources.push_back(Tensor("o.l.0.w.exp_avg"));
  sources.push_back(Tensor("o.l.0.w.step", {}));
  MapOptions options = Options();
  ASSERT_OK_AND_ASSIGN(const MappedTensors all, Sample().Map(sources, options));
  EXPECT_THAT(TensorNames(all),
              ElementsAre("head", "m.0.w", "m.1.w", "o.m.0.w.exp_avg",
                          "o.m.0.w.step", "tokens"));
  ASSERT_THAT(all.rules, SizeIs(2));
  EXPECT_EQ(all.rules[1].num_instances, 4U);
  options.parts = MapOptions::Parts::kModel;
  ASSERT_OK_AND_ASSIGN(const MappedTensors model,
                       Sample().Map(sources, options));
  EXPECT_THAT(model.tensors, SizeIs(4));
  EXPECT_THAT(model.dropped, ElementsAre("o.l.0.w.exp_avg", "o.l.0.w.step"));
  options.parts = MapOptions::Parts::kStates;
  ASSERT_OK_AND_ASSIGN(const MappedTensors states,
                       Sample().Map(sources, options));
  EXPECT_THAT(TensorNames(states),
              ElementsAre("o.m.0.w.exp_avg", "o.m.0.w.step"));
  EXPECT_THAT(states.dropped, ElementsAre("embed", "l.0.w", "l.1.w"));
}

TEST(Mapping, RefusesStatesThatCannotBeConverted) {
  std::vector<MappingTensor> sources = Sources();
  sources.push_back(Tensor("o.l.0.w.exp_avg_sq_row", {1}));
  EXPECT_THAT(
      Sample().Map(sources, Options()),
      StatusIs(absl::StatusCode::kDataLoss,
               AllOf(HasSubstr("the state exp_avg_sq_row of l.0.w has the "
                               "shape [1]"),
                     HasSubstr("convert the model alone"))));
  sources.back() = Tensor("o.l.0.w.exp_avg");
  MapOptions options = Options();
  options.to = "c";
  EXPECT_THAT(Sample().Map(sources, options),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("does not say how c names the state")));
}

TEST(Mapping, RefusesTwoRulesForOneTensor) {
  ASSERT_OK_AND_ASSIGN(
      const Mapping twice,
      ParseMapping(absl::StrCat(kText, "- {a: l.0.w, b: z}\n"), "m.yaml"));
  EXPECT_THAT(twice.Map(Sources(), Options()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("m.yaml:19: the rule of line 16 takes l.0.w "
                                 "too")));
  ASSERT_OK_AND_ASSIGN(
      const Mapping same,
      ParseMapping(absl::StrCat(kText, "- {a: x, b: m.0.w}\n"), "m.yaml"));
  std::vector<MappingTensor> sources = Sources();
  sources.push_back(Tensor("x"));
  EXPECT_THAT(same.Map(sources, Options()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("m.yaml:19: m.0.w is made twice")));
}

TEST(Mapping, RefusesTwoSourcesWithOneName) {
  std::vector<MappingTensor> sources = Sources();
  sources.push_back(Tensor("embed"));
  EXPECT_THAT(Sample().Map(sources, Options()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("two sources are called embed")));
}

TEST(Mapping, NamesMissingConfigKeys) {
  ASSERT_OK_AND_ASSIGN(
      const Mapping mapping,
      ParseMapping("tessera-mapping: 1\nname: t\nconfig:\n"
                   "  group: num_key_value_heads\nsides: {a: , b: }\n"
                   "rules:\n- {a: {x: (group d)}, b: {y: (d group)}}\n",
                   "m.yaml"));
  EXPECT_THAT(
      mapping.Map(std::vector<MappingTensor>{Tensor("x")},
                  {.from = "a", .to = "b"}),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr("m.yaml:7: cannot determine the sizes of group and d in "
                    "(group d): num_key_value_heads is in neither "
                    "config.json nor the settings; needed by group "
                    "(m.yaml:4)")));
}

TEST(Mapping, ConditionsComeFromConfigAndSettings) {
  ASSERT_OK_AND_ASSIGN(
      const Mapping mapping,
      ParseMapping("tessera-mapping: 1\nname: t\nconfig: {tied: [tie, 0]}\n"
                   "sides: {a: , b: }\nrules:\n"
                   "- {a: x, b: y, when: not tied}\n"
                   "- {a: x, b: z, when: tied}\n",
                   "m.yaml"));
  const std::vector<MappingTensor> sources = {Tensor("x")};
  MapOptions options = {.from = "a", .to = "b"};
  ASSERT_OK_AND_ASSIGN(const MappedTensors untied,
                       mapping.Map(sources, options));
  EXPECT_THAT(TensorNames(untied), ElementsAre("y"));
  options.config = R"({"tie": true})";
  ASSERT_OK_AND_ASSIGN(const MappedTensors tied, mapping.Map(sources, options));
  EXPECT_THAT(TensorNames(tied), ElementsAre("z"));
  options.settings = {{"tied", 0}};
  ASSERT_OK_AND_ASSIGN(const MappedTensors set, mapping.Map(sources, options));
  EXPECT_THAT(TensorNames(set), ElementsAre("y"));
}

}  // namespace
}  // namespace dcp
