#include <string>
#include <utility>
#include <vector>

#include "dcp/base/limits.h"
#include "dcp/format/value.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;
using Kind = Value::Kind;

constexpr uint64_t kMany = uint64_t{1} << 28;

Value OrderedDict(ValueArena& arena) {
  return arena.Call(arena.Global("collections", "OrderedDict"),
                    arena.Tuple({}));
}

TEST(ValueArena, ListsAndDictsGrowAndKeepTheirIdentity) {
  ValueArena arena;
  const Value list = arena.List();
  const Value dict = arena.Dict();
  const Value same = list;
  for (int i = 0; i < 10000; ++i) {
    arena.Append(list, Value::Int(i));
    arena.SetItem(dict, Value::Int(i), Value::Int(-i));
  }
  ASSERT_EQ(same.items().size(), 10000u);
  EXPECT_EQ(same.items()[9999].int_value(), 9999);
  EXPECT_EQ(dict.items()[19998].int_value(), 9999);
  EXPECT_EQ(dict.items()[19999].int_value(), -9999);
  EXPECT_EQ(list.identity(), same.identity());
  EXPECT_NE(list.identity(), arena.List().identity());
}

TEST(ValueArena, CallsTakeItemsElementsAndState) {
  ValueArena arena;
  const Value call = OrderedDict(arena);
  EXPECT_TRUE(call.items().empty());
  EXPECT_TRUE(call.elements().empty());
  EXPECT_TRUE(call.state().is_none());
  arena.SetItem(call, arena.Str("k"), Value::Int(1));
  arena.Append(call, Value::Int(2));
  arena.SetState(call, arena.Dict());
  EXPECT_EQ(call.items()[0].text(), "k");
  EXPECT_EQ(call.elements()[0].int_value(), 2);
  EXPECT_TRUE(call.state().is(Kind::kDict));
  EXPECT_TRUE(call.IsCallOf("collections", "OrderedDict"));
  EXPECT_FALSE(call.IsCallOf("collections", "Counter"));
}

TEST(ValueArena, GlobalsAreInterned) {
  ValueArena arena;
  const uint64_t before = arena.num_values();
  arena.Global("torch", "float32");
  const Value again = arena.Global("torch", "float32");
  EXPECT_EQ(arena.num_values(), before + 1);
  EXPECT_TRUE(again.IsGlobal("torch", "float32"));
}

TEST(ValueArena, ValuesSurviveAMoveOfTheirArena) {
  ValueArena arena;
  const Value text = arena.Str(std::string(100000, 'x'));
  const Value tuple = arena.Tuple({text, Value::Int(1)});
  const ValueArena moved = std::move(arena);
  EXPECT_EQ(tuple.items()[0].text().size(), 100000u);
}

TEST(Measure, CountsSharedPartsEachTime) {
  ValueArena arena;
  const Value list = arena.List({Value::Int(1), Value::Int(2)});
  const Value root = arena.Tuple({list, list, arena.Str("0123456789abcdef")});
  EXPECT_THAT(arena.Measure(root, kMany), IsOkAndHolds(1 + 3 + 3 + 2));
  EXPECT_THAT(arena.Measure(Value(), kMany), IsOkAndHolds(1));
}

TEST(Measure, LooksIntoEveryPartOfACall) {
  ValueArena arena;
  const Value call = OrderedDict(arena);
  arena.SetItem(call, Value::Int(1), Value::Int(2));
  arena.Append(call, Value::Int(3));
  arena.SetState(call, arena.Tuple({Value::Int(4)}));
  // The call, its empty arguments, 2 items, 1 element, state with 1.
  EXPECT_THAT(arena.Measure(arena.Persistent(call), kMany),
              IsOkAndHolds(1 + 1 + 1 + 2 + 1 + 2));
}

TEST(Measure, RefusesOtherCycles) {
  ValueArena arena;
  const Value list = arena.List();
  arena.Append(list, arena.Tuple({list}));
  EXPECT_THAT(
      arena.Measure(list, kMany),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("contains itself")));
  const Value argument = arena.List();
  const Value call =
      arena.Call(arena.Global("collections", "deque"), arena.Tuple({argument}));
  arena.Append(argument, call);
  EXPECT_THAT(
      arena.Measure(arena.Tuple({call}), kMany),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("contains itself")));
}

TEST(Measure, WhatAnObjectHoldsMayReferToTheObject) {
  ValueArena arena;
  const Value call = OrderedDict(arena);
  arena.SetState(call, arena.Dict({arena.Str("parent"), call}));
  EXPECT_THAT(arena.Measure(arena.Tuple({call}), kMany),
              IsOkAndHolds(1 + 1 + 1 + 1 + 1 + 1));
  const Value parent = call.state().items()[1];
  ASSERT_TRUE(parent.is(Value::Kind::kEnclosing));
  EXPECT_EQ(parent.enclosing().identity(), call.identity());
  EXPECT_EQ(parent.identity(), nullptr);
}

Value Nested(ValueArena& arena, Value inner, uint64_t depth) {
  for (uint64_t i = 0; i < depth; ++i) inner = arena.Tuple({inner});
  return inner;
}

TEST(Measure, DepthIsBoundedAlsoThroughSharedParts) {
  ValueArena arena;
  EXPECT_OK(arena.Measure(Nested(arena, Value(), kMaxPickleDepth), kMany));
  EXPECT_THAT(
      arena.Measure(Nested(arena, Value(), kMaxPickleDepth + 1), kMany),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("nested deeper")));
  const Value shared = Nested(arena, Value(), kMaxPickleDepth / 2);
  const Value deep = Nested(arena, shared, kMaxPickleDepth / 2 + 1);
  EXPECT_THAT(
      arena.Measure(arena.Tuple({shared, deep}), kMany),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("nested deeper")));
}

TEST(Measure, ExponentialExpansionIsRefusedInLinearTime) {
  ValueArena arena;
  Value laughs = arena.List({Value()});
  for (int i = 0; i < 100; ++i) {
    laughs = arena.List(std::vector<Value>(10, laughs));
  }
  EXPECT_THAT(arena.Measure(laughs, kMany),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("expand")));
}

// One of each kind, with a shared list, in an arena with much else in it.
Value OneOfEach(ValueArena& arena) {
  const Value shared = arena.List({arena.Str("in both")});
  const Value call = OrderedDict(arena);
  arena.SetItem(call, arena.Str("key"), shared);
  arena.Append(call, arena.Global("torch", "float32"));
  arena.SetState(call, arena.Tuple({shared, Value::Float(0.5)}));
  const Value made =
      arena.New(arena.Global("torch", "Size"), arena.Tuple({arena.Tuple({})}));
  return arena.Tuple(
      {call, made, arena.Bytes("bytes"), arena.BigInt("0123456789"),
       arena.Persistent(arena.Tuple({arena.Str("cpu"), Value::Int(7)})),
       arena.Dict({arena.Str(""), Value::Token(3, uint64_t{1} << 60)}),
       Value::Bool(true), Value()});
}

TEST(ValueArena, KeepsWhatItsRootsReachAndFreesTheRest) {
  ValueArena arena;
  for (int i = 0; i < 10000; ++i) arena.Tuple({arena.Str("garbage")});
  Value roots[] = {OneOfEach(arena), arena.Str("another root")};
  const size_t before = arena.num_bytes();
  arena.KeepOnly({absl::MakeSpan(roots)});
  EXPECT_LT(arena.num_bytes(), before / 10);
  ValueArena other;
  EXPECT_TRUE(DeepEqual(roots[0], OneOfEach(other), /*exact=*/true))
      << ToString(roots[0]);
  EXPECT_EQ(roots[1].text(), "another root");
  const Value call = roots[0].items()[0];
  EXPECT_EQ(call.items()[1].identity(), call.state().items()[0].identity());
  EXPECT_EQ(roots[0].items()[5].items()[1].token_type(), 3u);
  EXPECT_EQ(roots[0].items()[5].items()[1].token(), uint64_t{1} << 60);
  // Globals are found again, and what is new has a place.
  EXPECT_TRUE(
      DeepEqual(arena.Global("torch", "Size"), roots[0].items()[1].callable()));
  arena.Append(call.items()[1], Value::Int(1));
  EXPECT_EQ(call.state().items()[0].items().size(), 2u);
}

TEST(ValueArena, KeepsWhatSeveralRootsShare) {
  ValueArena arena;
  const Value list = arena.List({Value::Int(1)});
  Value first[] = {arena.Tuple({list})};
  Value second[] = {list};
  arena.KeepOnly({absl::MakeSpan(first), absl::MakeSpan(second)});
  EXPECT_EQ(first[0].items()[0].identity(), second[0].identity());
  EXPECT_EQ(arena.num_values(), 2u);
}

TEST(ValueArena, KeepsCyclesAndDeepNestsWithoutRecursion) {
  ValueArena arena;
  Value deep = arena.List();
  arena.Append(deep, deep);
  for (int i = 0; i < 1'000'000; ++i) deep = arena.Tuple({deep});
  arena.KeepOnly({absl::MakeSpan(&deep, 1)});
  for (int i = 0; i < 1'000'000; ++i) deep = deep.items()[0];
  EXPECT_EQ(deep.items()[0].identity(), deep.identity());
}

TEST(ValueArena, WhatIsKeptManyTimesStaysTheSame) {
  ValueArena arena;
  Value list = arena.List();
  for (int i = 0; i < 1000; ++i) {
    arena.Append(list, arena.Tuple({arena.Str("text"), Value::Int(i)}));
    if (i % 10 == 0) arena.KeepOnly({absl::MakeSpan(&list, 1)});
  }
  ASSERT_EQ(list.items().size(), 1000u);
  EXPECT_EQ(ToString(list.items()[999]), "('text', 999)");
}

}  // namespace
}  // namespace dcp
