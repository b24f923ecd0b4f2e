// SPDX-License-Identifier: Apache-2.0

#include "dcp/mapping/language/axes.h"

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Axes ParseAxes(absl::string_view text) {
  absl::StatusOr<Axes> axes = Axes::Parse(text);
  EXPECT_OK(axes) << text;
  return *std::move(axes);
}

std::string AxesText(const Axes& axes) {
  return absl::StrJoin(
      axes.dims(), " ",
      [](std::string* out, const AxisDim& dim) { out->append(ToString(dim)); });
}

// "[0,8] group:0*16x2 ...": base, and axis:dim*step x count.
std::string AxesText(const SummandWalk& walk) {
  std::string text = absl::StrCat("[", absl::StrJoin(walk.base, ","), "]");
  for (const AxisWalk& w : walk.walks) {
    absl::StrAppend(&text, " ", w.axis, ":", w.dim, "*", w.step, "x", w.count);
  }
  return text;
}

TEST(Axes, ReadsProductsAndSums) {
  EXPECT_EQ(AxesText(ParseAxes("f c")), "f c");
  EXPECT_EQ(AxesText(ParseAxes("(group q 2 r) c")), "(group q 2 r) c");
  EXPECT_EQ(AxesText(ParseAxes("(group (q + 1 + 1) 2 r) c")),
            "(group (q + 1 + 1) 2 r) c");
  EXPECT_EQ(AxesText(ParseAxes("e (f + f) c")), "e (f + f) c");
  EXPECT_EQ(AxesText(ParseAxes("(head d + head d)")), "(head d + head d)");
  EXPECT_EQ(AxesText(ParseAxes("((a b) c)")), "(a b c)");
  EXPECT_EQ(AxesText(ParseAxes("((a) + (b c))")), "(a + b c)");
  EXPECT_EQ(AxesText(ParseAxes("(group d) ...")), "(group d) ...");
  EXPECT_EQ(AxesText(ParseAxes("1 (1 a)")), "1 a");
  EXPECT_EQ(AxesText(ParseAxes("")), "");
  EXPECT_EQ(ParseAxes("(a + b + c) d").num_summands(), 3U);
  EXPECT_EQ(ParseAxes("a b").num_summands(), 1U);
  EXPECT_THAT(ParseAxes("x (a 2 (b + c) d)").SummandAxes(1),
              ElementsAre("x", "a", "c", "d"));
}

TEST(Axes, RefusesInvalidAxes) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"(a", "lack a \")\""},
      {"a)", "without a \"(\""},
      {"a + b", "outside of parentheses"},
      {"(a + b) (c + d)", "two sums"},
      {"((a + b) (c + d))", "two sums"},
      {"((a + b) + c)", "two sums"},
      {"(a + (b + c))", "two sums"},
      {"((a + b) c + d)", "two sums"},
      {"a a", "a twice"},
      {"(a (b + a))", "a twice"},
      {"(2 f 2)", "2 twice"},
      {"... ...", "... twice"},
      {"(a ...)", "inside of parentheses"},
      {"a-b", "neither an axis"},
      {"0", "not a number"},
      {"01", "not a number"},
      {"2x", "not a number"},
      {"9999999999", "not a number"},
      {"a b c d e f g h i j k l m n o p q", "more than 16 axes"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(Axes::Parse(text), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr(message)))
        << text;
  }
  std::string sum = "(a";
  for (size_t i = 0; i < kMaxMappingSummands; ++i) sum += " + a";
  EXPECT_THAT(Axes::Parse(sum + ")"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("more than 64 summands")));
  EXPECT_THAT(
      Axes::Parse(std::string(1000, '(')),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("too deeply")));
}

TEST(Axes, WalksInEachSummand) {
  const AxisSizes sizes = {{"group", 2}, {"q", 3}, {"r", 4}, {"c", 5}};
  const Axes axes = ParseAxes("(group (q + 1 + 1) 2 r) c");
  EXPECT_EQ(axes.DimExtent(0, sizes), 80U);
  ASSERT_OK_AND_ASSIGN(const std::vector<SummandWalk> walks, axes.Walks(sizes));
  ASSERT_EQ(walks.size(), 3U);
  EXPECT_EQ(AxesText(walks[0]),
            "[0,0] group:0*40x2 q:0*8x3 2:0*4x2 r:0*1x4 c:1*1x5");
  EXPECT_EQ(AxesText(walks[1]), "[24,0] group:0*40x2 2:0*4x2 r:0*1x4 c:1*1x5");
  EXPECT_EQ(AxesText(walks[2]), "[32,0] group:0*40x2 2:0*4x2 r:0*1x4 c:1*1x5");
}

TEST(Axes, RestAndLeadingDimensions) {
  const Axes axes = ParseAxes("(group d) ...");
  EXPECT_TRUE(axes.has_rest());
  EXPECT_EQ(AxesText(axes.WithRest(2)), "(group d) ...0 ...1");
  EXPECT_EQ(AxesText(axes.WithRest(0)), "(group d)");
  EXPECT_EQ(AxesText(axes.WithLeading({"i", "e"})), "i e (group d) ...");
}

TEST(Axes, UnknownAxesAndSizesThatAreTooLarge) {
  const Axes axes = ParseAxes("(b + a b) c");
  EXPECT_THAT(axes.UnknownAxes(0, {{"a", 2}}), ElementsAre("b"));
  const uint64_t large = kMaxAxisSize / 2;
  EXPECT_EQ(ParseAxes("(a b)").DimExtent(0, {{"a", large}, {"b", 2}}),
            kMaxAxisSize);
  EXPECT_EQ(ParseAxes("(a b)").DimExtent(0, {{"a", large}, {"b", 3}}),
            std::nullopt);
  EXPECT_THAT(
      ParseAxes("(a + b)").Walks({{"a", kMaxAxisSize}, {"b", 1}}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("exceeds")));
}

// Whatever the axes are, the summands reach every element once.
TEST(Axes, SummandsCoverATensorOnce) {
  std::mt19937 random(2);
  const auto below = [&](uint32_t n) -> uint32_t {
    return static_cast<uint32_t>(random() % n);
  };
  const char* const kShapes[] = {"(a (b + c + 1) d) e", "(a b) (c d)",
                                 "(b + a c) d",         "a (2 (b + c) 3)",
                                 "(a + a + b c d) e",   "d (a (1 + b c))"};
  for (int round = 0; round < 200; ++round) {
    const Axes axes = ParseAxes(kShapes[below(6)]);
    AxisSizes sizes;
    for (const char* axis : {"a", "b", "c", "d", "e"}) {
      sizes[axis] = below(4);
    }
    const uint64_t rows = *axes.DimExtent(0, sizes);
    const uint64_t columns =
        axes.dims().size() > 1 ? *axes.DimExtent(1, sizes) : 1;
    ASSERT_OK_AND_ASSIGN(const std::vector<SummandWalk> walks,
                         axes.Walks(sizes));
    std::multiset<uint64_t> seen;
    for (const SummandWalk& summand : walks) {
      uint64_t count = 1;
      for (const AxisWalk& walk : summand.walks) count *= walk.count;
      for (uint64_t n = 0; n < count; ++n) {
        std::vector<uint64_t> at = summand.base;
        uint64_t rest = n;
        for (const AxisWalk& walk : summand.walks) {
          at[walk.dim] += rest % walk.count * walk.step;
          rest /= walk.count;
        }
        at.resize(2);
        ASSERT_LT(at[0], rows);
        ASSERT_LT(at[1], columns);
        seen.insert(at[0] * columns + at[1]);
      }
    }
    ASSERT_EQ(seen.size(), rows * columns);
    ASSERT_EQ(std::set<uint64_t>(seen.begin(), seen.end()).size(),
              rows * columns);
  }
}

}  // namespace
}  // namespace dcp
