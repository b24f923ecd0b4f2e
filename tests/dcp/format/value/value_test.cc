// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/value/value.h"

#include <limits>

#include "gtest/gtest.h"
#include "tests/dcp/format/ordered_dict.h"

namespace dcp {
namespace {

using testing::OrderedDict;

TEST(Value, ScalarsKeepTheirValue) {
  EXPECT_TRUE(Value().is_none());
  EXPECT_TRUE(Value::Bool(true).bool_value());
  EXPECT_EQ(Value::Int(std::numeric_limits<int64_t>::min()).int_value(),
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(Value::Float(0.5).float_value(), 0.5);
}

TEST(ValueDeathTest, TheWrongAccessorIsABug) {
  EXPECT_DEATH(Value::Int(1).text(), "an int");
  EXPECT_DEATH(Value().items(), "None has no items");
}

TEST(DeepEqual, ComparesContentAcrossArenas) {
  ValueArena a;
  ValueArena b;
  EXPECT_TRUE(DeepEqual(a.List({a.Str("x")}), b.List({b.Str("x")})));
  EXPECT_FALSE(DeepEqual(a.List({a.Str("x")}), b.List({b.Str("y")})));
  EXPECT_FALSE(DeepEqual(a.List(), b.Tuple({})));
  EXPECT_FALSE(DeepEqual(a.Str("x"), b.Bytes("x")));
  EXPECT_FALSE(DeepEqual(Value::Int(1), Value::Bool(true)));
  EXPECT_TRUE(DeepEqual(a.Global("torch", "int8"), b.Global("torch", "int8")));
}

TEST(DeepEqual, FloatsAreComparedByTheirBits) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(DeepEqual(Value::Float(nan), Value::Float(nan)));
  EXPECT_FALSE(DeepEqual(Value::Float(0.0), Value::Float(-0.0)));
}

TEST(DeepEqual, OrderedDictEqualsDictButDefaultdictDoesNot) {
  ValueArena arena;
  const Value item[] = {arena.Str("k"), Value::Int(1)};
  const Value ordered = OrderedDict(arena);
  arena.Update(ordered, item);
  arena.SetState(ordered, arena.Dict());
  EXPECT_TRUE(DeepEqual(ordered, arena.Dict(item)));
  EXPECT_FALSE(DeepEqual(ordered, arena.Dict(item), /*exact=*/true));
  const Value defaulted =
      arena.Call(arena.Global("collections", "defaultdict"),
                 arena.Tuple({arena.Global("builtins", "list")}));
  arena.Update(defaulted, item);
  EXPECT_FALSE(DeepEqual(defaulted, arena.Dict(item)));
  EXPECT_TRUE(IsMapping(defaulted));
  EXPECT_TRUE(IsMapping(ordered));
  EXPECT_FALSE(IsMapping(arena.List()));
}

}  // namespace
}  // namespace dcp
