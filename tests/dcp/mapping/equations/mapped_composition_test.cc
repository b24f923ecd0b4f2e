// SPDX-License-Identifier: Apache-2.0
// Conversions between two sides that are not the pivot, element by element.
#include "dcp/mapping/equations/mapped_composition.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/mapping/application/mapping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/mapping/apply_pieces.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::ApplyPieces;
using ::dcp::testing::ArrayTensor;
using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::PaddingsAreZero;
using ::dcp::testing::StatusIs;
using ::dcp::testing::WithoutBytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::string_view kComposedHead = R"(tessera-mapping: 1
name: test
params: {k: 2, pad: 1}
sides: {p: , a: , b: }
rules:
)";

ArrayTensor ComposedBytes(std::string name, Dims shape, std::string bytes) {
  return {.tensor = {.name = std::move(name),
                     .dtype = DType::kUInt8,
                     .shape = std::move(shape)},
          .bytes = std::move(bytes)};
}

absl::StatusOr<MappedTensors> Map(absl::string_view rules,
                                  const std::vector<ArrayTensor>& sources) {
  DCP_ASSIGN_OR_RETURN(
      const Mapping mapping,
      ParseMapping(absl::StrCat(kComposedHead, rules), "m.yaml"));
  return mapping.Map(WithoutBytes(sources), {.from = "a", .to = "b"});
}

// Side a's tensors as side b: "NAME BYTES" for each tensor.
absl::StatusOr<std::vector<std::string>> ConvertComposed(
    absl::string_view rules, const std::vector<ArrayTensor>& sources) {
  DCP_ASSIGN_OR_RETURN(const MappedTensors mapped, Map(rules, sources));
  DCP_ASSIGN_OR_RETURN(const std::vector<ArrayTensor> made,
                       ApplyPieces(mapped, sources));
  std::vector<std::string> texts;
  for (const ArrayTensor& array : made) {
    texts.push_back(absl::StrCat(array.tensor.name, " ", array.bytes));
  }
  return texts;
}

TEST(MappedComposition, GoesThroughThePivot) {
  // Separate rules for each side, which cut the pivot at other places.
  EXPECT_THAT(ConvertComposed("- {p: {x: (k r) c}, a: {y: (r k) c}}\n"
                              "- {p: {x: c d}, b: {z: d c}}\n",
                              {ComposedBytes("y", {4, 2}, "abcdefgh")}),
              IsOkAndHolds(ElementsAre("z aecgbfdh")));
  // A fused tensor becomes another one with other neighbours.
  EXPECT_THAT(ConvertComposed("- {p: [{x: f}, {y: f}], a: {xy: (f + f)}}\n"
                              "- {p: [{y: g}, {x: g}], b: {yx: (g + g)}}\n",
                              {ComposedBytes("xy", {4}, "abcd")}),
              IsOkAndHolds(ElementsAre("yx cdab")));
  // An index becomes an axis, and in the end another index.
  EXPECT_THAT(
      ConvertComposed(
          "- {p: {x: i j}, a: {\"a.{i}\": j}, for: {i: 0 .. 2}}\n"
          "- {p: {x: i j}, b: {\"b.{j}\": i}, for: {j: 0 .. 3}}\n",
          {ComposedBytes("a.0", {3}, "abc"), ComposedBytes("a.1", {3}, "def")}),
      IsOkAndHolds(ElementsAre("b.0 ad", "b.1 be", "b.2 cf")));
}

TEST(MappedComposition, PaddingsAndTiesReferToTheSource) {
  // Padding in a is left out, and b has other padding.
  const std::vector<ArrayTensor> padded = {
      ComposedBytes("y", {3}, {'a', 'b', '\0'})};
  const absl::string_view pad =
      "- {p: [{x: v}, {=0: pad}], a: {y: (v + pad)}}\n"
      "- {p: {x: v}, b: {z: v}}\n";
  ASSERT_OK_AND_ASSIGN(const MappedTensors mapped, Map(pad, padded));
  EXPECT_THAT(mapped.paddings, SizeIs(1));
  EXPECT_TRUE(PaddingsAreZero(mapped, padded));
  EXPECT_THAT(ConvertComposed(pad, padded), IsOkAndHolds(ElementsAre("z ab")));
  // Elements that b lacks must be equal in the pivot, and so in a.
  const absl::string_view equal =
      "- {p: {x: h k}, a: {y: k h}}\n- {p: {x: h k}, b: {z: h}}\n";
  EXPECT_THAT(ConvertComposed(equal, {ComposedBytes("y", {2, 2}, "abab")}),
              IsOkAndHolds(ElementsAre("z ab")));
  EXPECT_THAT(
      ConvertComposed(equal, {ComposedBytes("y", {2, 2}, "abac")}),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("y differs from y")));
  // Elements that a has once are equal without a check.
  const absl::string_view once =
      "- {p: {x: h k}, a: {y: h}}\n- {p: {x: h k}, b: {z: h}}\n";
  const std::vector<ArrayTensor> y = {ComposedBytes("y", {2}, "ab")};
  EXPECT_THAT(ConvertComposed(once, y), IsOkAndHolds(ElementsAre("z ab")));
  // Padding in the pivot alone pads no tensor.
  const absl::string_view zero =
      "- {p: {x: (v + pad)}, a: [{y: v}, {=0: pad}]}\n"
      "- {p: {x: (v + pad)}, b: [{z: v}, {=0: pad}]}\n";
  ASSERT_OK_AND_ASSIGN(const MappedTensors none, Map(zero, y));
  EXPECT_THAT(none.paddings, IsEmpty());
  EXPECT_THAT(ConvertComposed(zero, y), IsOkAndHolds(ElementsAre("z ab")));
}

TEST(MappedComposition, ZeroDoesNotEqualASource) {
  EXPECT_THAT(Map("- {p: {x: (v + v)}, a: [{y: v}, {=0: v}]}\n"
                  "- {p: {x: (k h)}, b: {z: h}}\n",
                  {ComposedBytes("y", {2}, "ab")}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("convert in two steps")));
}

TEST(MappedComposition, ReportsRulesOfBothHalves) {
  ASSERT_OK_AND_ASSIGN(const MappedTensors mapped,
                       Map("- {p: x, a: y}\n- {p: x, b: z, copies: {b: [w]}}",
                           {ComposedBytes("y", {1}, "a")}));
  ASSERT_THAT(mapped.rules, SizeIs(2));
  EXPECT_EQ(mapped.rules[0].text, "y -> x");
  EXPECT_EQ(mapped.rules[1].text, "x -> z");
  EXPECT_THAT(mapped.copied, ElementsAre("w"));
  EXPECT_THAT(
      Map("- {p: x, a: y}\n- {p: w, b: z}", {ComposedBytes("y", {1}, "a")}),
      StatusIs(absl::StatusCode::kDataLoss,
               HasSubstr("from a by way of p: m.yaml:7: nothing is found")));
}

}  // namespace
}  // namespace dcp
