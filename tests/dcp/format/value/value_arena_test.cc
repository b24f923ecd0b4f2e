// SPDX-License-Identifier: Apache-2.0

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "dcp/base/limits.h"
#include "dcp/format/value/value.h"
#include "dcp/format/value/value_arena_impl.h"
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
TEST(ValueArena, ListsAndDictsGrowAndKeepTheirIdentity) {
  ValueArena arena;
  const Value list = arena.List();
  const Value dict = arena.Dict();
  const Value same = list;
  for (int i = 0; i < 10000; ++i) {
    arena.Append(list, Value::Int(i));
    arena.Update(dict, {Value::Int(i), Value::Int(-i)});
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
  arena.Update(call, {arena.Str("k"), Value::Int(1)});
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

TEST(ValueArena, OnlySmallPagesMakeHugePagesForBlocks) {
  const size_t largest = ArenaMemory::kLastBlockBytes;
  const size_t ordinary = alignof(std::max_align_t);
  EXPECT_EQ(ArenaMemory::BlockAlignment(largest, 4 << 10), size_t{2} << 20);
  EXPECT_EQ(ArenaMemory::BlockAlignment(2 << 20, 4 << 10), size_t{2} << 20);
  EXPECT_EQ(ArenaMemory::BlockAlignment((2 << 20) - 1, 4 << 10), ordinary);
  // One text may be longer than a huge page of 512 MiB.
  for (const size_t bytes : {largest, size_t{1} << 30}) {
    EXPECT_EQ(ArenaMemory::BlockAlignment(bytes, 16 << 10), ordinary);
    EXPECT_EQ(ArenaMemory::BlockAlignment(bytes, 64 << 10), ordinary);
  }
}

TEST(ValueArena, ValuesSurviveAMoveOfTheirArena) {
  ValueArena arena;
  const Value text = arena.Str(std::string(100000, 'x'));
  const Value tuple = arena.Tuple({text, Value::Int(1)});
  const ValueArena moved = std::move(arena);
  EXPECT_EQ(tuple.items()[0].text().size(), 100000u);
}

}  // namespace
}  // namespace dcp
