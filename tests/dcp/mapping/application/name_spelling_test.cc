// SPDX-License-Identifier: Apache-2.0

#include "dcp/mapping/application/name_spelling.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "dcp/mapping/application/mapping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Optional;

constexpr absl::string_view kSpellingText = R"(tessera-mapping: 1
name: test
config: {tied: [tie, 0]}
sides:
  a:
  b:
    blocks:
      kind: mxfp4
      weight: "{x:**}.w"
      codes: "{x:**}.codes"
      scales: "{x:**}.scales"
states: {a: "o.{slot:*}.{param:**}"}
drop: {a: ["{x:**}.cache"]}
rules:
- {a: "l.{i}.w", b: "m.{i + layers}.w"}
- {a: x, b: y, copies: {b: [z]}, tolerates: {a: [w]}}
- {a: tied, b: tied, when: tied}
)";

absl::StatusOr<std::optional<std::string>> Unknown(
    absl::string_view side, const std::vector<std::string>& names,
    absl::string_view config = "") {
  const absl::StatusOr<Mapping> mapping = ParseMapping(kSpellingText, "m.yaml");
  EXPECT_OK(mapping);
  return FirstUnknownName(mapping->file(), side, names, config, {});
}

TEST(NameSpelling, KnowsNamesInRulesTiesAndDrops) {
  EXPECT_THAT(Unknown("a", {"l.0.w", "x", "w", "a.b.cache", "o.m.l.1.w"}),
              IsOkAndHolds(Eq(std::nullopt)));
  EXPECT_THAT(Unknown("a", {"x", "l.0.v", "n"}),
              IsOkAndHolds(Optional(Eq("l.0.v"))));
  EXPECT_THAT(Unknown("a", {"z"}), IsOkAndHolds(Optional(Eq("z"))));
  EXPECT_THAT(Unknown("b", {"y", "z"}), IsOkAndHolds(Eq(std::nullopt)));
}

TEST(NameSpelling, TakesConditionsAndOffsetsFromTheConfig) {
  EXPECT_THAT(Unknown("a", {"tied"}), IsOkAndHolds(Optional(Eq("tied"))));
  EXPECT_THAT(Unknown("a", {"tied"}, R"({"tie": true})"),
              IsOkAndHolds(Eq(std::nullopt)));
  EXPECT_THAT(Unknown("b", {"m.3.w"}), IsOkAndHolds(Optional(Eq("m.3.w"))));
  EXPECT_THAT(Unknown("b", {"m.3.w"}, R"({"layers": 3})"),
              IsOkAndHolds(Eq(std::nullopt)));
}

TEST(NameSpelling, KnowsCodesAndScales) {
  const std::string config = R"({"layers": 3})";
  EXPECT_THAT(Unknown("b", {"m.3.codes", "m.3.scales", "y"}, config),
              IsOkAndHolds(Eq(std::nullopt)));
  EXPECT_THAT(Unknown("b", {"n.3.codes"}, config),
              IsOkAndHolds(Optional(Eq("n.3.codes"))));
  EXPECT_THAT(Unknown("a", {"l.3.codes"}, config),
              IsOkAndHolds(Optional(Eq("l.3.codes"))));
}

TEST(NameSpelling, RefusesUnknownSidesAndConfigs) {
  EXPECT_THAT(Unknown("c", {}), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("has no side 'c'")));
  EXPECT_THAT(
      Unknown("a", {}, "{"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("config.json")));
}

}  // namespace
}  // namespace dcp
