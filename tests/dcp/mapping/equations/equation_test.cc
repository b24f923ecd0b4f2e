// SPDX-License-Identifier: Apache-2.0
// The effect of one rule, element by element. Mapping::Map applies it, because
// that is how an Equation gets sources.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/status.h"
#include "dcp/mapping/application/mapping.h"
#include "dcp/tensor/box.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/mapping/apply_pieces.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::ApplyPieces;
using ::dcp::testing::ArrayTensor;
using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::string_view kHead = R"(tessera-mapping: 1
name: test
config: {n: layers, e: experts, group: groups, q: heads / group,
         padded: 'round_up(experts, tp)'}
params: {pad: 2, tp: 2}
sides: {a: , b: }
states: {a: "o.{param:**}.{slot:*}", b: "s.{slot:*}.{param:**}"}
rules:
)";

constexpr absl::string_view kConfig =
    R"({"layers": 2, "experts": 3, "heads": 4, "groups": 2})";

// A tensor with bytes `values`.
ArrayTensor Bytes(std::string name, const Dims& shape,
                  const std::vector<int>& values) {
  ArrayTensor array;
  array.tensor = {
      .name = std::move(name), .dtype = DType::kUInt8, .shape = shape};
  for (const int value : values)
    array.bytes.push_back(static_cast<char>(value));
  EXPECT_EQ(array.bytes.size(), static_cast<size_t>(Volume(shape)));
  return array;
}

// "name [2, 3] 1 2 3 ..." for each tensor.
std::string TextOf(const std::vector<ArrayTensor>& arrays) {
  std::vector<std::string> lines;
  for (const ArrayTensor& array : arrays) {
    std::string line =
        absl::StrCat(array.tensor.name, " ", ShapeToString(array.tensor.shape));
    for (const char c : array.bytes) {
      absl::StrAppend(&line, " ", static_cast<int>(c));
    }
    lines.push_back(std::move(line));
  }
  return absl::StrJoin(lines, "; ");
}

absl::StatusOr<std::vector<ArrayTensor>> Convert(
    absl::string_view rules, const std::vector<ArrayTensor>& sources,
    const std::string& from, const std::string& to) {
  DCP_ASSIGN_OR_RETURN(const Mapping mapping,
                       ParseMapping(absl::StrCat(kHead, rules), "m.yaml"));
  DCP_ASSIGN_OR_RETURN(
      const MappedTensors mapped,
      mapping.Map(testing::WithoutBytes(sources),
                  {.from = from, .to = to, .config = std::string(kConfig)}));
  return ApplyPieces(mapped, sources);
}

// `sources` on side b as text; also checks that it becomes `sources` again.
std::string ThereAndBack(absl::string_view rules,
                         const std::vector<ArrayTensor>& sources) {
  const absl::StatusOr<std::vector<ArrayTensor>> there =
      Convert(rules, sources, "a", "b");
  EXPECT_OK(there);
  if (!there.ok()) return "";
  const absl::StatusOr<std::vector<ArrayTensor>> back =
      Convert(rules, *there, "b", "a");
  EXPECT_OK(back);
  if (back.ok()) {
    EXPECT_EQ(TextOf(*back), TextOf(sources));
  }
  return TextOf(*there);
}

TEST(Equation, ConcatenatesAndSplits) {
  EXPECT_EQ(
      ThereAndBack("- {a: [{x: f c}, {y: f c}], b: {z: (f + f) c}}",
                   {Bytes("x", {1, 2}, {1, 2}), Bytes("y", {1, 2}, {3, 4})}),
      "z [2, 2] 1 2 3 4");
  EXPECT_EQ(
      ThereAndBack("- {a: [{x: c f}, {y: c f}], b: {z: c (f + f)}}",
                   {Bytes("x", {2, 1}, {1, 2}), Bytes("y", {2, 1}, {3, 4})}),
      "z [2, 2] 1 3 2 4");
}

TEST(Equation, InterleavesGroups) {
  EXPECT_EQ(ThereAndBack("- a: [{q: (group q d) ...}, {k: (group d) ...}]\n"
                         "  b: {qk: (group (q + 1) d) ...}",
                         {Bytes("k", {4}, {9, 10, 11, 12}),
                          Bytes("q", {8}, {1, 2, 3, 4, 5, 6, 7, 8})}),
            "qk [12] 1 2 3 4 9 10 5 6 7 8 11 12");
}

TEST(Equation, RotatesAndTransposes) {
  EXPECT_EQ(ThereAndBack("- {a: {x: (2 r)}, b: {y: (r 2)}}",
                         {Bytes("x", {6}, {1, 2, 3, 4, 5, 6})}),
            "y [6] 1 4 2 5 3 6");
  EXPECT_EQ(ThereAndBack("- {a: {x: f c}, b: {y: c f}}",
                         {Bytes("x", {2, 3}, {1, 2, 3, 4, 5, 6})}),
            "y [3, 2] 1 4 2 5 3 6");
}

TEST(Equation, StacksIndices) {
  EXPECT_EQ(ThereAndBack("- {a: {\"x.{e}\": f}, b: {y: f e}}",
                         {Bytes("x.0", {2}, {1, 2}), Bytes("x.1", {2}, {3, 4}),
                          Bytes("x.2", {2}, {5, 6})}),
            "y [2, 3] 1 3 5 2 4 6");
  // Only the names show how many there are.
  EXPECT_EQ(ThereAndBack("- {a: {\"x.{k}\": f}, b: {y: k f}}",
                         {Bytes("x.0", {1}, {1}), Bytes("x.1", {1}, {2})}),
            "y [2, 1] 1 2");
  EXPECT_EQ(ThereAndBack("- a: {\"x.{k}\": f}\n"
                         "  b: {y: k f}\n"
                         "  for: {k: 3 .. layers + 3}",
                         {Bytes("x.3", {1}, {1}), Bytes("x.4", {1}, {2})}),
            "y [2, 1] 1 2");
}

TEST(Equation, PadsWithZeros) {
  EXPECT_EQ(ThereAndBack("- {a: [{x: v c}, {=0: pad c}], b: {y: (v + pad) c}}",
                         {Bytes("x", {1, 2}, {1, 2})}),
            "y [3, 2] 1 2 0 0 0 0");
}

TEST(Equation, MakesConstantsWithoutSources) {
  EXPECT_EQ(ThereAndBack("- a: x\n  b: y\n"
                         "- {a: {=0: e}, b: {\"z.{n}\": e}, dtype: uint8}",
                         {Bytes("x", {1}, {7})}),
            "y [1] 7; z.0 [3] 0 0 0; z.1 [3] 0 0 0");
}

TEST(Equation, RenamesWithTextsOffsetsAndEmptyTensors) {
  EXPECT_EQ(
      ThereAndBack(
          "- a: \"l.{n}.{w:weight|bias}\"\n"
          "  b: \"m.{n + layers}.{w:weight|bias}\"",
          {Bytes("l.0.bias", {0}, {}), Bytes("l.0.weight", {}, {1}),
           Bytes("l.1.bias", {2, 0}, {}), Bytes("l.1.weight", {1, 1}, {3})}),
      "m.2.bias [0]; m.2.weight [] 1; m.3.bias [2, 0]; m.3.weight [1, 1] "
      "3");
}

TEST(Equation, AnAxisOnOneSideHasOneValueForAll) {
  // An index that is only in names.
  const absl::string_view files = "- {a: x, b: \"{tp}/y\"}";
  EXPECT_EQ(ThereAndBack(files, {Bytes("x", {2}, {1, 2})}),
            "0/y [2] 1 2; 1/y [2] 1 2");
  EXPECT_THAT(
      Convert(files, {Bytes("0/y", {2}, {1, 2}), Bytes("1/y", {2}, {1, 3})},
              "b", "a"),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("1/y differs from 0/y")));
  // An axis in a shape.
  const absl::string_view axes = "- {a: {x: h}, b: {y: (h pad)}}";
  EXPECT_EQ(ThereAndBack(axes, {Bytes("x", {2}, {1, 2})}), "y [4] 1 1 2 2");
  EXPECT_THAT(
      Convert(axes, {Bytes("y", {4}, {1, 1, 2, 3})}, "b", "a"),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("y differs from y")));
}

TEST(Equation, TiedTensorsAreWrittenAndCompared) {
  const absl::string_view rules =
      "- {a: x, b: y, copies: {b: [z]}, tolerates: {a: [w]}}";
  EXPECT_EQ(ThereAndBack(rules, {Bytes("x", {2}, {1, 2})}),
            "y [2] 1 2; z [2] 1 2");
  EXPECT_THAT(Convert(rules, {Bytes("w", {2}, {1, 2}), Bytes("x", {2}, {1, 2})},
                      "a", "b"),
              IsOkAndHolds(::testing::SizeIs(2)));
  EXPECT_THAT(
      Convert(rules, {Bytes("w", {2}, {1, 3}), Bytes("x", {2}, {1, 2})}, "a",
              "b"),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("w differs from x")));
  EXPECT_THAT(
      Convert(rules, {Bytes("w", {1}, {1}), Bytes("x", {2}, {1, 2})}, "a", "b"),
      StatusIs(absl::StatusCode::kDataLoss,
               HasSubstr("w is tied to x and has another type")));
  EXPECT_THAT(Convert(rules, {Bytes("y", {2}, {1, 2})}, "b", "a"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("z is missing")));
}

TEST(Equation, ConvertsOptimizerStates) {
  const absl::string_view rules =
      "- {a: [{x: f c}, {y: f c}], b: {z: (f + f) c}}";
  // A step is one value for all, so both must be equal.
  EXPECT_EQ(ThereAndBack(
                rules, {Bytes("o.x.m", {1, 1}, {1}), Bytes("o.x.step", {}, {5}),
                        Bytes("o.y.m", {1, 1}, {2}), Bytes("o.y.step", {}, {5}),
                        Bytes("x", {1, 1}, {3}), Bytes("y", {1, 1}, {4})}),
            "s.m.z [2, 1] 1 2; s.step.z [] 5; z [2, 1] 3 4");
  EXPECT_THAT(
      Convert(rules, {Bytes("o.x.step", {}, {5}), Bytes("o.y.step", {}, {6})},
              "a", "b"),
      StatusIs(absl::StatusCode::kDataLoss,
               HasSubstr("o.y.step differs from o.x.step")));
  EXPECT_THAT(
      Convert(rules, {Bytes("o.x.m", {1, 1}, {5}), Bytes("o.y.m", {}, {6})},
              "a", "b"),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("only one is a scalar")));
}

TEST(Equation, AppliesRulesToTheModelOrTheStates) {
  const absl::string_view rules =
      "- {a: x, b: y, of: model}\n- {a: {x: f c}, b: {z: c f}, of: states}";
  EXPECT_EQ(ThereAndBack(rules, {Bytes("o.x.m", {1, 2}, {1, 2}),
                                 Bytes("x", {1, 2}, {3, 4})}),
            "s.m.z [2, 1] 1 2; y [1, 2] 3 4");
}

// Sources that rules do not fit, and the error.
struct Misfit {
  std::string rules;
  std::vector<ArrayTensor> sources;
  std::string message;
};

void ExpectMisfits(const std::vector<Misfit>& cases) {
  for (const Misfit& c : cases) {
    EXPECT_THAT(Convert(c.rules, c.sources, "a", "b"),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr(c.message), HasSubstr("m.yaml:"))))
        << c.rules;
  }
}

TEST(Equation, RefusesSourcesThatDoNotFit) {
  const ArrayTensor x = Bytes("x", {2}, {1, 2});
  ArrayTensor other_type = Bytes("y", {2}, {1, 2});
  other_type.tensor.dtype = DType::kInt8;
  ExpectMisfits({
      {"- {a: {x: (group q r)}, b: {y: (q group r)}}",
       {Bytes("x", {6}, {1, 2, 3, 4, 5, 6})},
       "m.yaml:9: x has 6 rows; (group q r) with group = groups = 2, q = heads "
       "/ group = 2 needs a multiple of 4"},
      {"- {a: {x: c (e f)}, b: {y: e c f}}",
       {Bytes("x", {1, 2}, {1, 2})},
       "m.yaml:9: x has 2 elements in dimension 1; (e f) with e = experts = 3 "
       "needs a multiple of 3"},
      {"- {a: {x: e}, b: {y: e}}",
       {x},
       "x has 2 rows; e with e = experts = 3 "
       "is 3"},
      {"- {a: {x: padded}, b: {y: padded}}",
       {x},
       " is 4; --set tp=N changes padded"},
      {"- {a: {x: (f + e)}, b: [{y: f}, {z: e}]}",
       {x},
       "x has 2 rows; (f + e) with e = experts = 3 needs at least 3"},
      {"- {a: {x: f c}, b: {y: c f}}",
       {x},
       "x has the shape [2] where the "
       "rule has f c"},
      {"- {a: {x: f ...}, b: {y: f ...}}",
       {Bytes("x", {}, {1})},
       "x has the shape [] where the rule has f ..."},
      {"- {a: [x, y], b: [z, w]}", {x}, "y is missing where x is"},
      {"- {a: [x, y], b: [z, w]}",
       {x, other_type},
       "x is uint8, and y, which becomes one with it, is int8"},
      {"- {a: {\"x.{n}\": f ...}, b: {y: n f ...}}",
       {Bytes("x.0", {1}, {1}), Bytes("x.1", {2}, {1, 2})},
       "x.0 has the shape [1], and x.1, which is stacked with it, has [2]"},
      {"- {a: [x, y], b: [z, w]}",
       {x, Bytes("y", {1, 1}, {1})},
       "y has 2 dimensions for ..., and another tensor of the rule has 1"},
  });
}

TEST(Equation, ReportsMissingSources) {
  const ArrayTensor x = Bytes("x", {2}, {1, 2});
  ExpectMisfits({
      {"- {a: {\"x.{n}\": f}, b: {y: n f}}",
       {Bytes("x.0", {1}, {1})},
       "x.{n} lacks n = 1; there is x.0"},
      {"- {a: \"x.{n}\", b: \"y.{n}\"}",
       {Bytes("x.1", {1}, {1})},
       "x.{n} lacks n = 0"},
      {"- {a: \"x.{n}.{e}\", b: \"y.{n}.{e}\"}",
       {Bytes("x.0.0", {1}, {1}), Bytes("x.0.1", {1}, {1}),
        Bytes("x.0.2", {1}, {1}), Bytes("x.1.0", {1}, {1}),
        Bytes("x.1.2", {1}, {1})},
       "x.{n}.{e} lacks n = 1, e = 1"},
      {"- {a: \"x.{w:p|q}\", b: \"y.{w:p|q}\"}",
       {Bytes("x.q", {1}, {1})},
       "x.{w:p|q} lacks w = p; there is no x.p; to map the rest "
       "without it, name it in the option allow_missing"},
      {"- {a: \"x.{n}.{w:p|q}\", b: \"y.{n}.{w:p|q}\"}",
       {Bytes("x.0.p", {1}, {1}), Bytes("x.0.q", {1}, {1}),
        Bytes("x.1.p", {1}, {1})},
       "lacks n = 1, w = q"},
      // An optional rule is there or not, as a whole.
      {"- {a: \"x.{n}\", b: \"y.{n}\", optional: true}",
       {Bytes("x.1", {1}, {1})},
       "x.{n} lacks n = 0"},
      {"- {a: x, b: y}\n- {a: z, b: w}",
       {x},
       "m.yaml:10: nothing is found for z"},
  });
}

TEST(Equation, FormulasDecideWhichRulesAreOptional) {
  const ArrayTensor x = Bytes("x", {1}, {1});
  EXPECT_EQ(ThereAndBack(
                "- {a: x, b: y}\n- {a: z, b: w, optional: experts == 3}", {x}),
            "y [1] 1");
  ASSERT_OK_AND_ASSIGN(
      const Mapping mapping,
      ParseMapping(absl::StrCat(kHead,
                                "- {a: x, b: y}\n- {a: z, b: w, optional:"
                                " not model_type.strict}"),
                   "m.yaml"));
  const auto map = [&](absl::string_view config) {
    return mapping
        .Map(testing::WithoutBytes({x}),
             {.from = "a", .to = "b", .config = std::string(config)})
        .status();
  };
  EXPECT_THAT(map(R"({"text_config": {"model_type": "strict"}})"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("found for z")));
  EXPECT_THAT(map(R"({"model_type": "other"})"),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("model_type.strict is in neither")));
}

TEST(Equation, RefusesUnknownSizes) {
  const ArrayTensor x = Bytes("x", {4}, {1, 2, 3, 4});
  EXPECT_THAT(
      Convert("- {a: {x: (f g)}, b: {y: f g}}", {x}, "a", "b"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("m.yaml:9: cannot determine the sizes of f and g")));
  EXPECT_THAT(Convert("- {a: {x: f, y: g}, b: {z: f g}}", {x}, "a", "b"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("neither NAME nor NAME: AXES")));
  EXPECT_THAT(
      Convert("- {a: {x: (f h) f}, b: {y: h f f2}}", {x}, "a", "b"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("f twice")));
  EXPECT_THAT(
      Convert("- {a: {=0: e}, b: {y: e}}\n- {a: x, b: z}", {x}, "a", "b"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("the rule has no dtype")));
}

TEST(Equation, AnIndexWithoutValuesNeedsNoTensors) {
  EXPECT_EQ(ThereAndBack("- {a: x, b: y}\n"
                         "- {a: \"z.{k}\", b: \"w.{k}\", for: {k: 2 .. 2}}",
                         {Bytes("x", {1}, {1})}),
            "y [1] 1");
}

TEST(Equation, HostileSizesEndQuickly) {
  const std::string config = R"({"layers": 1000000000, "experts":
      4611686018427387904, "heads": 9223372036854775807, "groups": 1})";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"- {a: {x: n}, b: {\"y.{n}\": \"\"}}", "x has 1 rows; n"},
      {"- {a: x, b: \"y.{n}\"}", "exceed 1048576"},
      {"- {a: x, b: \"y.{n}.{e}.{q}\"}", "exceed 1048576"},
      {"- {a: {x: f}, b: {y: e f}}\n", "too large"},
      {"- {a: {x: f}, b: {y: (q f)}}\n", "exceeds"},
      {"- {a: {x: (q f)}, b: {y: f}}\n", "x has 1 rows"},
      {"- {a: [{x: f}, {=0: e}], b: {y: (f + e)}}", "exceeds"},
      {"- {a: \"x{n}\", b: \"y{n}\"}", "nothing is found"},
      {"- {a: {\"x.{n}\": f}, b: {y: n f}}", "nothing is found"},
  };
  for (const auto& [rules, message] : cases) {
    ASSERT_OK_AND_ASSIGN(const Mapping mapping,
                         ParseMapping(absl::StrCat(kHead, rules), "m.yaml"));
    const std::vector<MappingTensor> sources = {
        {.name = "x", .dtype = DType::kFloat32, .shape = {1}}};
    const absl::StatusOr<MappedTensors> mapped =
        mapping.Map(sources, {.from = "a", .to = "b", .config = config});
    EXPECT_THAT(mapped.status().message(), HasSubstr(message)) << rules;
  }
}

TEST(Equation, RefusesMoreLoopsThanAPieceMayHave) {
  const std::vector<ArrayTensor> sources = {
      Bytes("x", {512}, std::vector<int>(512, 1))};
  EXPECT_THAT(Convert("- {a: {x: ((2 pad) tp f)}, b: {y: (f tp pad 2)}}",
                      sources, "a", "b"),
              IsOkAndHolds(::testing::SizeIs(1)));
  std::string head(kHead);
  head.replace(head.find("{pad: 2, tp: 2}"), 15,
               "{a1: 2, a2: 2, a3: 2, a4: 2, a5: 2, a6: 2, a7: 2, a8: 2, a9: "
               "2}");
  ASSERT_OK_AND_ASSIGN(
      const Mapping mapping,
      ParseMapping(absl::StrCat(head,
                                "- a: {x: (a1 a2 a3 a4 a5 a6 a7 a8 a9)}\n"
                                "  b: {y: (a9 a8 a7 a6 a5 a4 a3 a2 a1)}\n"),
                   "m.yaml"));
  EXPECT_THAT(
      mapping.Map(testing::WithoutBytes(sources), {.from = "a", .to = "b"}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("rearranges 9 axes, more than 8")));
}

// A random order and grouping of axes, and the text for it.
struct RandomSide {
  std::vector<size_t> order;
  std::string text;
  Dims shape;
};

RandomSide MakeSide(const std::vector<size_t>& sizes, std::mt19937& random) {
  RandomSide side;
  side.order.resize(sizes.size());
  std::iota(side.order.begin(), side.order.end(), size_t{0});
  std::shuffle(side.order.begin(), side.order.end(), random);
  for (size_t i = 0; i < side.order.size();) {
    size_t end = i + 1 + random() % 2;
    end = std::min(end, side.order.size());
    absl::StrAppend(&side.text, side.text.empty() ? "(" : " (");
    int64_t size = 1;
    for (; i < end; ++i) {
      absl::StrAppend(&side.text, "x", side.order[i], i + 1 == end ? "" : " ");
      size *= static_cast<int64_t>(sizes[side.order[i]]);
    }
    side.text += ")";
    side.shape.push_back(size);
  }
  return side;
}

size_t PlaceIn(const RandomSide& side, const std::vector<size_t>& sizes,
               const std::vector<size_t>& at) {
  size_t place = 0;
  for (const size_t axis : side.order) place = place * sizes[axis] + at[axis];
  return place;
}

TEST(Equation, AnyOrderOfAxesMovesEveryElementToItsPlace) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    std::vector<size_t> sizes(1 + random() % 5);
    std::string params;
    size_t volume = 1;
    for (size_t axis = 0; axis < sizes.size(); ++axis) {
      sizes[axis] = 1 + random() % 3;
      volume *= sizes[axis];
      absl::StrAppend(&params, axis == 0 ? "" : ", ", "x", axis, ": ",
                      sizes[axis]);
    }
    const RandomSide a = MakeSide(sizes, random);
    const RandomSide b = MakeSide(sizes, random);
    ASSERT_OK_AND_ASSIGN(
        const Mapping mapping,
        ParseMapping(
            absl::StrCat("tessera-mapping: 1\nname: n\nparams: {", params,
                         "}\nsides: {a: , b: }\nrules:\n- a: {s: ", a.text,
                         "}\n  b: {d: ", b.text, "}\n"),
            "m.yaml"));
    std::vector<int> values(volume);
    std::iota(values.begin(), values.end(), 0);
    const std::vector<ArrayTensor> sources = {Bytes("s", a.shape, values)};
    ASSERT_OK_AND_ASSIGN(
        const MappedTensors mapped,
        mapping.Map(testing::WithoutBytes(sources), {.from = "a", .to = "b"}));
    ASSERT_OK_AND_ASSIGN(const std::vector<ArrayTensor> made,
                         ApplyPieces(mapped, sources));
    ASSERT_EQ(made[0].tensor.shape, b.shape);
    for (size_t n = 0; n < volume; ++n) {
      std::vector<size_t> at;
      size_t rest = n;
      for (const size_t size : sizes) {
        at.push_back(rest % size);
        rest /= size;
      }
      ASSERT_EQ(made[0].bytes[PlaceIn(b, sizes, at)],
                sources[0].bytes[PlaceIn(a, sizes, at)])
          << a.text << " to " << b.text;
    }
  }
}

}  // namespace
}  // namespace dcp
