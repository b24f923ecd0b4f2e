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
// One value of each kind, with a shared list.
Value OneOfEach(ValueArena& arena) {
  const Value shared = arena.List({arena.Str("in both")});
  const Value call = OrderedDict(arena);
  arena.Update(call, {arena.Str("key"), shared});
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

TEST(ValueArena, KeepsReachableValuesAndFreesOthers) {
  ValueArena arena;
  for (int i = 0; i < 10000; ++i) arena.Tuple({Value::Int(i)});
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
  // Globals are found again, and there is room for new values.
  EXPECT_TRUE(
      DeepEqual(arena.Global("torch", "Size"), roots[0].items()[1].callable()));
  arena.Append(call.items()[1], Value::Int(1));
  EXPECT_EQ(call.state().items()[0].items().size(), 2u);
}

TEST(ValueArena, KeepsValuesSharedByRoots) {
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

TEST(ValueArena, KeepingManyTimesChangesNothing) {
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
