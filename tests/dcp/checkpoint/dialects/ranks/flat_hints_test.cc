// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/ranks/flat_hints.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::Disk;
using ::dcp::testing::SafetensorsBytes;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kHintLayout[] = R"([
  {"flat": "_flat_param", "params": [
    {"name": "w", "shape": [2, 3]}, {"padding": 2}, {"name": "s", "shape": []}]},
  {"params": [], "flat": "layers.0._flat_param"}])";

TEST(FlatHints, ALayoutSaysWhereEachParameterIs) {
  FlatHints hints;
  ASSERT_OK(ParseFlatLayout(kHintLayout, hints));
  ASSERT_OK_AND_ASSIGN(const FlatUnit* const unit,
                       hints.Find("_flat_param", 9));
  ASSERT_EQ(unit->parameters.size(), 2u);
  EXPECT_EQ(unit->parameters[0].name, "w");
  EXPECT_EQ(unit->parameters[0].shape, Dims({2, 3}));
  EXPECT_EQ(unit->parameters[1].begin, 8);
  EXPECT_EQ(unit->parameters[1].numel, 1);
  EXPECT_OK(hints.Find("layers.0._flat_param", 0));
  EXPECT_EQ(*hints.FindShape("w", 6), Dims({2, 3}));
}

TEST(FlatHints, ADifferenceBetweenLayoutAndCheckpointIsNamed) {
  FlatHints hints;
  ASSERT_OK(ParseFlatLayout(kHintLayout, hints));
  EXPECT_THAT(hints.Find("_flat_param", 10),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("9"), HasSubstr("10"))));
  EXPECT_THAT(hints.Find("other", 9),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("other")));
  EXPECT_THAT(hints.FindShape("w", 7),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("[2, 3]")));
  EXPECT_THAT(hints.FindShape("x", 7),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("x")));
}

TEST(FlatHints, MalformedLayoutsAreRefused) {
  const struct {
    std::string json;
    std::string message;
  } cases[] = {
      {"{}", "layout"},
      {"[1]", "layout"},
      {R"([{"params": []}])", "flat and params"},
      {R"([{"flat": 1}])", "flat"},
      {R"([{"flat": "a", "params": {}}])", "layout"},
      {R"([{"flat": "a", "params": [{}]}])", "name and shape"},
      {R"([{"flat": "a", "params": [{"name": "w"}]}])", "name and shape"},
      {R"([{"flat": "a", "params": [{"name": "w", "shape": [1],
           "padding": 1}]}])",
       "name and shape"},
      {R"([{"flat": "a", "params": [{"name": "w", "shape": [-1]}]}])", "shape"},
      {R"([{"flat": "a", "params": [{"padding": -1}]}])", "padding"},
      {R"([{"flat": "a", "params": [{"name": "w",
           "shape": [4611686018427387904, 4]}]}])",
       "too large"},
      {R"([{"flat": "a", "params": [{"padding": 9223372036854775807},
           {"padding": 9223372036854775807}]}])",
       "too large"},
      {R"([{"flat": "a", "params": [{"name": "w", "shape": [1]},
           {"name": "w", "shape": [1]}]}])",
       "w occurs twice"},
      {R"([{"flat": "a", "params": []}, {"flat": "a", "params": []}])",
       "a occurs twice"},
      {R"([{"flat": "a")", ""},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(test.json);
    FlatHints hints;
    EXPECT_THAT(ParseFlatLayout(test.json, hints),
                StatusIs(StatusCode::kDataLoss, HasSubstr(test.message)));
  }
}

TEST(FlatHints, AFullCheckpointGivesShapes) {
  const TempDir dir;
  const std::string path = dir.WriteFile(
      "full.safetensors",
      SafetensorsBytes({{"model.w", DType::kUInt8, {2, 2}, "abcd"}}));
  ASSERT_OK_AND_ASSIGN(const FlatHints hints,
                       ReadFlatHints(Disk(), {.like = path}, {}));
  EXPECT_EQ(*hints.FindShape("w", 4), Dims({2, 2}));
  EXPECT_EQ(*hints.FindShape("model.w", 4), Dims({2, 2}));
  EXPECT_THAT(hints.FindShape("v", 4), StatusIs(StatusCode::kInvalidArgument,
                                                HasSubstr("the option like")));
}

TEST(FlatHints, ErrorsNameTheFile) {
  const TempDir dir;
  EXPECT_THAT(
      ReadFlatHints(Disk(), {.layout = dir.WriteFile("x.json", "[")}, {}),
      StatusIs(StatusCode::kDataLoss, HasSubstr("x.json")));
  EXPECT_THAT(ReadFlatHints(Disk(), {.layout = dir.path() + "/none"}, {}),
              StatusIs(StatusCode::kNotFound, HasSubstr("none")));
  EXPECT_THAT(ReadFlatHints(Disk(), {.like = dir.path() + "/none"}, {}),
              StatusIs(StatusCode::kNotFound, HasSubstr("none")));
}

}  // namespace
}  // namespace dcp
