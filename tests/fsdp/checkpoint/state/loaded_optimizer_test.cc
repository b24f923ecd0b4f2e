// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/loaded_optimizer.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fsdp {
namespace {

using absl::StatusCode;
using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<std::vector<std::string>> kNames = {{"a.w", "a.b"}, {"c"}};

StateDict Nested(const StateList& first, const StateList& second,
                 const std::string& key) {
  return {{"state", StateDict({{key, StateDict({{"step", 1}})}})},
          {"param_groups",
           StateList{StateDict({{"lr", 0.5}, {"params", first}}),
                     StateDict({{"lr", 0.25}, {"params", second}})}}};
}

double LearningRate(const LoadedOptimizer& loaded, size_t group) {
  return *loaded.groups[group].hyperparameters.find("lr")->get_if<double>();
}

TEST(LoadedOptimizer, NamesOrNumbersInNestedDicts) {
  const StateDict by_name = Nested({"a.b", "a.w"}, {"c"}, "a.b");
  const StateDict by_number = Nested({1, 0}, {2}, "1");
  for (const StateDict& dict : {by_name, by_number}) {
    const auto loaded = ParseOptimizerState(dict, kNames);
    ASSERT_OK(loaded.status());
    ASSERT_EQ(loaded->groups.size(), 2u);
    EXPECT_THAT(loaded->groups[0].names, ElementsAre("a.b", "a.w"));
    EXPECT_THAT(loaded->groups[1].names, ElementsAre("c"));
    EXPECT_EQ(LearningRate(*loaded, 1), 0.25);
    ASSERT_TRUE(loaded->state.contains("a.b"));
    EXPECT_EQ(loaded->groups[0].hyperparameters.find("params"), nullptr);
  }
  EXPECT_THAT(
      ParseOptimizerState(Nested({0, 1}, {3}, "0"), kNames),
      StatusIs(StatusCode::kInvalidArgument,
               HasSubstr("it names parameter 3, but the optimizer has 3")));
}

// A parameter may be called "0": among names, digits are a name.
TEST(LoadedOptimizer, DigitsAreANameWhereTheGroupsHaveNames) {
  const auto loaded = ParseOptimizerState(Nested({"0"}, {"1"}, "1"), kNames);
  ASSERT_OK(loaded.status());
  EXPECT_TRUE(loaded->state.contains("1"));
}

TEST(LoadedOptimizer, FlatteningAndBack) {
  const StateDict flat =
      FlattenOptimizerState(Nested({"a.b", "a.w"}, {"c"}, "a.b"));
  std::vector<std::string> keys;
  for (const auto& [key, value] : flat) keys.push_back(key);
  EXPECT_THAT(keys, ElementsAre("state.a.b.step", "param_groups.a.b.lr",
                                "param_groups.a.w.lr", "param_groups.c.lr"));
  const auto loaded = ParseOptimizerState(flat, kNames);
  ASSERT_OK(loaded.status());
  ASSERT_EQ(loaded->groups.size(), 3u);
  EXPECT_THAT(loaded->groups[1].names, ElementsAre("a.w"));
  EXPECT_EQ(LearningRate(*loaded, 2), 0.25);
  EXPECT_EQ(*loaded->state.at("a.b").find("step")->get_if<int64_t>(), 1);
}

TEST(LoadedOptimizer, EmptyAndHalfEmptyDicts) {
  const auto empty = ParseOptimizerState({}, kNames);
  ASSERT_OK(empty.status());
  EXPECT_THAT(empty->groups, IsEmpty());
  // A checkpoint of a stateless optimizer holds nothing.
  const auto stateless = ParseOptimizerState(
      {{"param_groups", StateList{StateDict({{"lr", 1.0}})}}}, kNames);
  ASSERT_OK(stateless.status());
  EXPECT_THAT(stateless->state, IsEmpty());
  EXPECT_EQ(stateless->groups.size(), 1u);
}

TEST(LoadedOptimizer, RefusesOtherDicts) {
  const std::vector<std::pair<StateDict, std::string>> cases = {
      {{{"state", 1}}, "state is an int; expected a dict"},
      {{{"state", StateDict({{"w", 2.5}})}},
       "state.w is a float; expected a dict"},
      {{{"param_groups", "x"}}, "param_groups is a text; expected a list"},
      {{{"param_groups", StateList{7}}},
       "param group is an int; expected a dict"},
      {{{"param_groups", StateList{StateDict({{"params", 7}})}}},
       "params of a param group is an int"},
      {{{"param_groups", StateList{StateDict({{"params", StateList{0.5}}})}}},
       "a parameter of a param group is a float; expected a name"},
      {{{"weight", 1}}, "the key weight"},
      {{{"state.weight", 1}}, "the key state.weight"},
  };
  for (const auto& [dict, what] : cases) {
    EXPECT_THAT(ParseOptimizerState(dict, kNames),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(what)));
  }
}

}  // namespace
}  // namespace fsdp
