// SPDX-License-Identifier: Apache-2.0

#include <string>
#include <utility>
#include <vector>

#include "dcp/base/limits.h"
#include "dcp/format/value/value.h"
#include "gtest/gtest.h"
#include "tests/dcp/format/ordered_dict.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using testing::OrderedDict;

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;
using Kind = Value::Kind;
constexpr uint64_t kMany = uint64_t{1} << 28;

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
  arena.Update(call, {Value::Int(1), Value::Int(2)});
  arena.Append(call, Value::Int(3));
  arena.SetState(call, arena.Tuple({Value::Int(4)}));
  // The call, the empty arguments, 2 items, 1 element, state with 1.
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

TEST(Measure, AnObjectsPartsMayReferToIt) {
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

}  // namespace
}  // namespace dcp
