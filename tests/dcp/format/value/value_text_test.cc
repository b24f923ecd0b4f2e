// SPDX-License-Identifier: Apache-2.0

#include <cmath>
#include <limits>
#include <string>

#include "dcp/format/value/value.h"
#include "gtest/gtest.h"

namespace dcp {
namespace {

TEST(ValueText, NumbersReadAsInPython) {
  EXPECT_EQ(ToString(Value::Int(-7)), "-7");
  EXPECT_EQ(ToString(Value::Bool(false)), "False");
  EXPECT_EQ(ToString(Value()), "None");
  EXPECT_EQ(ToString(Value::Float(1.0)), "1.0");
  EXPECT_EQ(ToString(Value::Float(0.1)), "0.1");
  EXPECT_EQ(ToString(Value::Float(-0.0)), "-0.0");
  EXPECT_EQ(ToString(Value::Float(1e16)), "1e+16");
  EXPECT_EQ(ToString(Value::Float(9007199254740993.0)), "9007199254740992.0");
  EXPECT_EQ(ToString(Value::Float(0.0001)), "0.0001");
  EXPECT_EQ(ToString(Value::Float(1e-5)), "1e-05");
  EXPECT_EQ(ToString(Value::Float(-INFINITY)), "-inf");
  EXPECT_EQ(ToString(Value::Float(std::numeric_limits<double>::quiet_NaN())),
            "nan");
}

TEST(ValueText, LargeIntegersAreDecimal) {
  ValueArena arena;
  const auto text = [&](absl::string_view bytes) {
    return ToString(arena.BigInt(bytes));
  };
  EXPECT_EQ(text(absl::string_view("\0\0\0\0\0\0\0\0\1", 9)),
            "18446744073709551616");
  EXPECT_EQ(text(absl::string_view("\xff\xff\xff\xff\xff\xff\xff\x7f\xff", 9)),
            "-9223372036854775809");
  EXPECT_EQ(text(absl::string_view("\0\0\0\0\0\0\0\0\0\0\0\x80", 12)),
            "-39614081257132168796771975168");
  EXPECT_EQ(text(""), "0");
}

TEST(ValueText, ContainersReadAsInPython) {
  ValueArena arena;
  const Value dict = arena.Dict({
      arena.Str("lr"),
      Value::Float(0.1),
      arena.Str("betas"),
      arena.Tuple({Value::Float(0.9)}),
      Value::Int(3),
      arena.List({Value(), arena.Bytes(absl::string_view("\0z", 2))}),
  });
  EXPECT_EQ(ToString(dict),
            "{'lr': 0.1, 'betas': (0.9,), 3: [None, b'\\x00z']}");
  EXPECT_EQ(ToString(arena.Tuple({})), "()");
}

TEST(ValueText, ObjectsShowTheirCallAndContent) {
  ValueArena arena;
  const Value size = arena.Call(arena.Global("torch", "Size"),
                                arena.Tuple({arena.Tuple({Value::Int(2)})}));
  EXPECT_EQ(ToString(size), "torch.Size((2,))");
  const Value call = arena.Call(arena.Global("a", "b"), arena.Tuple({}));
  arena.Update(call, {Value::Int(1), Value::Int(2)});
  arena.Append(call, Value::Int(3));
  EXPECT_EQ(ToString(call), "a.b({1: 2}, [3])");
  EXPECT_EQ(ToString(arena.Persistent(Value::Int(4))), "persistent(4)");
}

TEST(ValueText, LongTextIsCutBetweenCharacters) {
  ValueArena arena;
  EXPECT_EQ(ToString(arena.Str("abcdefgh"), 10), "'abcdefgh'");
  EXPECT_EQ(ToString(arena.Str("abcdefghi"), 10), "'abcdef...");
  // Each character has 3 bytes: the cut falls back to the last whole one.
  EXPECT_EQ(ToString(arena.Str("\u20ac\u20ac\u20ac\u20ac"), 9), "'\u20ac...");
  EXPECT_EQ(ToString(arena.Str("abc"), 2), "..");
  EXPECT_EQ(ToString(arena.Str(std::string(1 << 20, 'x'))).size(), 200u);
}

TEST(ValueText, RenderingOfAHugeValueStopsEarly) {
  ValueArena arena;
  Value laughs = arena.List({Value()});
  for (int i = 0; i < 200; ++i) laughs = arena.List({laughs, laughs});
  EXPECT_EQ(ToString(laughs, 50).size(), 50u);
}

}  // namespace
}  // namespace dcp
