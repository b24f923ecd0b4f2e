// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/ranks/optimizer_names.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dcp/format/torch/torch_tensor.h"
#include "dcp/format/value/value_lookup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/format/rank_values.h"

namespace dcp {
namespace {

using ::dcp::testing::MakeDTensor;
using ::dcp::testing::MakeShard;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// The names that are found without knowing the parameters' order.
OptimizerNames Found(const Value& model, const Value& optimizer) {
  return FindOptimizerNames(SavedParameters(model), optimizer,
                            /*in_order=*/false)
      .names;
}

class OptimizerNamesTest : public ::testing::Test {
 protected:
  Value Text(absl::string_view text) { return arena_.Str(text); }
  Value Tensor(const Dims& shape, absl::string_view key) {
    return MakeTensor(arena_, DType::kFloat32, shape, false, key);
  }
  // Rows in a tensor with shape (2, columns).
  Value Rows(int64_t columns, const std::string& key) {
    return MakeDTensor(arena_, {.shape = {2, columns},
                                .local = {1, columns},
                                .key = key,
                                .mesh = {2},
                                .coordinate = {0},
                                .placements = {MakeShard(arena_, 0)}});
  }
  // One group for each list of numbers.
  Value Optimizer(const Value& state,
                  const std::vector<std::vector<int64_t>>& groups) {
    const Value list = arena_.List();
    for (const std::vector<int64_t>& numbers : groups) {
      const Value params = arena_.List();
      for (const int64_t number : numbers) {
        arena_.Append(params, Value::Int(number));
      }
      arena_.Append(list, arena_.Dict({Text("params"), params, Text("lr"),
                                       Value::Float(0.1)}));
    }
    return arena_.Dict({Text("state"), state, Text("param_groups"), list});
  }
  Value State(int64_t number, const Value& moment) {
    return arena_.Dict(
        {Value::Int(number), arena_.Dict({Text("exp_avg"), moment, Text("step"),
                                          Tensor({}, "9")})});
  }

  ValueArena arena_;
};

TEST_F(OptimizerNamesTest, ShardedTensorsAreTheParameters) {
  const Value model =
      arena_.Dict({Text("a"), Rows(3, "0"), Text("buffer"), Tensor({3}, "1"),
                   Text("b"), Rows(4, "2"), Text("tied"), Rows(3, "0")});
  EXPECT_THAT(Found(model, Optimizer(State(1, Rows(4, "3")), {{0, 1}})),
              UnorderedElementsAre(Pair(0, "a"), Pair(1, "b")));
}

TEST_F(OptimizerNamesTest, WithoutShardsAllTensorsAre) {
  const Value model =
      arena_.Dict({Text("a"), Tensor({2}, "0"), Text("b"), Tensor({4}, "1"),
                   Text("note"), Value::Int(1)});
  EXPECT_THAT(Found(model, Optimizer(State(0, Tensor({2}, "3")), {{0, 1}})),
              UnorderedElementsAre(Pair(0, "a"), Pair(1, "b")));
}

TEST_F(OptimizerNamesTest, TheOrderOfEqualShapesIsNotGuessed) {
  const Value model =
      arena_.Dict({Text("a"), Tensor({2}, "0"), Text("b"), Tensor({2}, "1"),
                   Text("c"), Tensor({3}, "2")});
  const Value moments =
      arena_.Dict({Value::Int(0), arena_.Dict({Text("m"), Tensor({2}, "3")}),
                   Value::Int(1), arena_.Dict({Text("m"), Tensor({2}, "4")}),
                   Value::Int(2), arena_.Dict({Text("m"), Tensor({3}, "5")})});
  const Parameters parameters = SavedParameters(model);
  const Value optimizer = Optimizer(moments, {{0, 1, 2}});
  const FoundNames found =
      FindOptimizerNames(parameters, optimizer, /*in_order=*/false);
  EXPECT_THAT(found.names, IsEmpty());
  EXPECT_TRUE(found.needs_order);
  EXPECT_THAT(
      FindOptimizerNames(parameters, optimizer, /*in_order=*/true).names,
      UnorderedElementsAre(Pair(0, "a"), Pair(1, "b"), Pair(2, "c")));
  // None of the parameters without a state can get a wrong one.
  EXPECT_THAT(Found(model, Optimizer(State(2, Tensor({3}, "5")), {{1, 2, 0}})),
              UnorderedElementsAre(Pair(1, "a"), Pair(0, "b"), Pair(2, "c")));
}

TEST_F(OptimizerNamesTest, DistinctShapesGiveNamesInAnyOrderAndGroups) {
  const Value model =
      arena_.Dict({Text("a"), Tensor({2}, "0"), Text("b"), Tensor({4}, "1"),
                   Text("buffer"), Tensor({5}, "2")});
  const Value moments =
      arena_.Dict({Value::Int(0), arena_.Dict({Text("m"), Tensor({4}, "3")}),
                   Value::Int(1), arena_.Dict({Text("m"), Tensor({2}, "4")})});
  for (const auto& groups :
       std::vector<std::vector<std::vector<int64_t>>>{{{0, 1}}, {{1}, {0}}}) {
    EXPECT_THAT(Found(model, Optimizer(moments, groups)),
                UnorderedElementsAre(Pair(0, "b"), Pair(1, "a")));
  }
}

TEST_F(OptimizerNamesTest, NamesThatTheGroupsRecordCount) {
  const Value model =
      arena_.Dict({Text("a"), Tensor({2}, "0"), Text("b"), Tensor({2}, "1")});
  const auto optimizer = [&](absl::string_view second) {
    const Value group = arena_.Dict(
        {Text("params"), arena_.List({Value::Int(0), Value::Int(1)}),
         Text("param_names"), arena_.List({Text("b"), Text(second)})});
    return arena_.Dict({Text("state"), State(0, Tensor({2}, "3")),
                        Text("param_groups"), arena_.List({group})});
  };
  EXPECT_THAT(Found(model, optimizer("a")),
              UnorderedElementsAre(Pair(0, "b"), Pair(1, "a")));
  // These names come from another model.
  EXPECT_THAT(FindOptimizerNames(SavedParameters(model), optimizer("x"),
                                 /*in_order=*/true)
                  .names,
              UnorderedElementsAre(Pair(0, "a"), Pair(1, "b")));
}

TEST_F(OptimizerNamesTest, NumbersStayWhenItIsNotCertain) {
  const Value model =
      arena_.Dict({Text("a"), Rows(3, "0"), Text("b"), Rows(4, "2")});
  const Value none = arena_.Dict();
  EXPECT_THAT(Found(model, Optimizer(none, {{0}, {1}})), IsEmpty());
  EXPECT_THAT(Found(model, Optimizer(none, {{0}})), IsEmpty());
  EXPECT_THAT(Found(model, Optimizer(none, {{0, 1, 2}})), IsEmpty());
  EXPECT_THAT(Found(model, Optimizer(State(0, Rows(5, "3")), {{0, 1}})),
              IsEmpty());
  EXPECT_THAT(Found(Value::Int(1), Optimizer(none, {{0}})), IsEmpty());
  EXPECT_THAT(Found(model, Value::Int(1)), IsEmpty());
  const Value named = arena_.Dict(
      {Text("state"), none, Text("param_groups"),
       arena_.List({arena_.Dict(
           {Text("params"), arena_.List({Text("a"), Text("b")})})})});
  EXPECT_THAT(Found(model, named), IsEmpty());
}

TEST_F(OptimizerNamesTest, NamesTakeThePlaceOfNumbers) {
  const Value state = arena_.Dict({Value::Int(0), arena_.Dict(), Value::Int(7),
                                   arena_.Dict(), Text("x"), arena_.Dict()});
  const Value renamed =
      WithNames(arena_, Optimizer(state, {{0, 7}}), {{0, "a"}, {1, "b"}});
  EXPECT_EQ(ToString(*FindKey(renamed, "state")), "{'a': {}, 7: {}, 'x': {}}");
  EXPECT_EQ(ToString(*FindKey(renamed, "param_groups")),
            "[{'params': ['a', 7], 'lr': 0.1}]");
}

TEST_F(OptimizerNamesTest, ANumberMayStandForSeveralNames) {
  const Value groups =
      arena_.List({arena_.Dict({Text("params"),
                                arena_.List({Value::Int(0), Value::Int(1)})}),
                   Value::Int(3)});
  EXPECT_EQ(ToString(GroupsWithNames(arena_, groups, {{0, {"a", "b"}}})),
            "[{'params': ['a', 'b', 1]}, 3]");
  EXPECT_EQ(GroupsWithNames(arena_, Value::Int(1), {}).int_value(), 1);
}

TEST_F(OptimizerNamesTest, ReadsNumbersFromTheOnlyGroup) {
  EXPECT_THAT(*OnlyGroupNumbers(Optimizer(arena_.Dict(), {{4, 2}})),
              ElementsAre(4, 2));
  EXPECT_FALSE(OnlyGroupNumbers(Optimizer(arena_.Dict(), {})).has_value());
}

}  // namespace
}  // namespace dcp
