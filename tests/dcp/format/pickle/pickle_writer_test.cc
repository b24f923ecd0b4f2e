// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/pickle/pickle_writer.h"

#include <cstdint>
#include <limits>
#include <string>

#include "dcp/format/pickle/pickle_globals.h"
#include "dcp/format/pickle/pickle_reader.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

absl::StatusOr<PickleResult> ReadPickle(absl::string_view pickle,
                                        ValueArena& arena) {
  return ReadPickle(
      AsBytes(pickle),
      {.allow_global = IsStateDictGlobal, .allow_persistent_ids = true}, arena);
}

// Writes `value` and reads it again; the read value writes the same bytes.
void ExpectRoundTrip(const Value& value) {
  ValueArena arena;
  const std::string pickle = WritePickle(value);
  ASSERT_OK_AND_ASSIGN(const PickleResult result, ReadPickle(pickle, arena));
  EXPECT_TRUE(DeepEqual(value, result.root)) << ToString(result.root);
  EXPECT_EQ(result.length, pickle.size());
  EXPECT_EQ(WritePickle(result.root), pickle);
}

TEST(PickleWriter, WritesTheSameBytesAsPython) {
  ValueArena arena;
  const auto bytes = [](absl::string_view text) { return std::string(text); };
  EXPECT_EQ(WritePickle(Value()), "\x80\x02N.");
  EXPECT_EQ(WritePickle(Value::Bool(true)), "\x80\x02\x88.");
  EXPECT_EQ(WritePickle(Value::Int(255)), "\x80\x02K\xff.");
  EXPECT_EQ(WritePickle(Value::Int(256)),
            bytes(absl::string_view("\x80\x02M\0\x01.", 6)));
  EXPECT_EQ(WritePickle(Value::Int(-1)), "\x80\x02J\xff\xff\xff\xff.");
  EXPECT_EQ(WritePickle(Value::Int(int64_t{1} << 31)),
            bytes(absl::string_view("\x80\x02\x8a\x05\0\0\0\x80\0.", 10)));
  EXPECT_EQ(WritePickle(Value::Float(1.5)),
            bytes(absl::string_view("\x80\x02G\x3f\xf8\0\0\0\0\0\0.", 12)));
  EXPECT_EQ(WritePickle(arena.Str("a")),
            bytes(absl::string_view("\x80\x02X\x01\0\0\0aq\0.", 11)));
  EXPECT_EQ(WritePickle(arena.Global("builtins", "list")),
            bytes(absl::string_view("\x80\x02"
                                    "c__builtin__\nlist\nq\0.",
                                    23)));
  EXPECT_EQ(WritePickle(arena.Tuple({Value(), arena.Tuple({})})),
            "\x80\x02N)\x86.");
}

TEST(PickleWriter, IntegersOfEverySizeComeBack) {
  ValueArena arena;
  for (int shift = 0; shift < 63; ++shift) {
    for (const int64_t delta : {-1, 0, 1}) {
      const int64_t value = (int64_t{1} << shift) + delta;
      ExpectRoundTrip(Value::Int(value));
      ExpectRoundTrip(Value::Int(-value));
    }
  }
  ExpectRoundTrip(Value::Int(std::numeric_limits<int64_t>::min()));
  ExpectRoundTrip(Value::Int(std::numeric_limits<int64_t>::max()));
  ExpectRoundTrip(arena.BigInt(std::string(9, '\x7f')));
  ExpectRoundTrip(arena.BigInt(std::string(300, '\x80')));
}

TEST(PickleWriter, EveryKindComesBack) {
  ValueArena arena;
  const Value call =
      arena.Call(arena.Global("collections", "OrderedDict"), arena.Tuple({}));
  arena.Update(call, {arena.Str("k"), arena.Bytes("\xff\x01")});
  arena.SetState(call, arena.Dict({arena.Str("_metadata"), Value()}));
  const Value set = arena.Call(arena.Global("builtins", "set"),
                               arena.Tuple({arena.List({Value::Int(1)})}));
  const Value id = arena.Persistent(arena.Tuple({arena.Str("storage")}));
  ExpectRoundTrip(arena.List({call, set, id, Value(), Value::Float(-0.0)}));
  ExpectRoundTrip(arena.Tuple({call, call, call, call}));
  ExpectRoundTrip(arena.Bytes(""));
  ExpectRoundTrip(arena.Str("\xed\xa0\x80\xf0\x9f\x98\x80"));
}

TEST(PickleWriter, AttributesComeBack) {
  ValueArena arena;
  const Value call =
      arena.Call(arena.Global("collections", "OrderedDict"), arena.Tuple({}));
  arena.Append(call, Value::Int(5));
  arena.SetState(call, arena.Tuple({Value::Int(7)}));
  const std::string pickle = WritePickle(call);
  ASSERT_OK_AND_ASSIGN(const PickleResult result, ReadPickle(pickle, arena));
  EXPECT_EQ(ToString(result.root.elements()[0]), "5");
  EXPECT_EQ(ToString(result.root.state()), "(7,)");
}

TEST(PickleWriter, SharedContainersStayShared) {
  ValueArena arena;
  const Value list = arena.List({Value::Int(1)});
  const Value tuple = arena.Tuple({list, list});
  const std::string pickle = WritePickle(arena.List({tuple, tuple, list}));
  ASSERT_OK_AND_ASSIGN(const PickleResult result, ReadPickle(pickle, arena));
  const absl::Span<const Value> items = result.root.items();
  EXPECT_EQ(items[0].identity(), items[1].identity());
  EXPECT_EQ(items[0].items()[0].identity(), items[2].identity());
}

TEST(PickleWriter, NewObjectsAndEnclosedOnesComeBack) {
  ValueArena arena;
  const Value made =
      arena.New(arena.Global("collections", "OrderedDict"), arena.Tuple({}));
  const Value child =
      arena.Call(arena.Global("collections", "OrderedDict"), arena.Tuple({}));
  arena.SetState(child,
                 arena.Dict({arena.Str("parent"), arena.Enclosing(made)}));
  arena.Update(made, {arena.Str("child"), child});
  ASSERT_OK_AND_ASSIGN(
      const PickleResult result,
      ReadPickle(WritePickle(arena.List({made, child})), arena));
  const Value again = result.root.items()[0];
  EXPECT_TRUE(again.is_new());
  const Value again_child = again.items()[1];
  EXPECT_FALSE(again_child.is_new());
  EXPECT_EQ(again_child.identity(), result.root.items()[1].identity());
  const Value parent = again_child.state().items()[1];
  ASSERT_TRUE(parent.is(Value::Kind::kEnclosing));
  EXPECT_EQ(parent.enclosing().identity(), again.identity());
}

TEST(PickleWriter, EqualStringsAreWrittenOnce) {
  ValueArena arena;
  const std::string text(1000, 'x');
  const Value list = arena.List({arena.Str(text), arena.Str(text)});
  EXPECT_LT(WritePickle(list).size(), 1100u);
  ExpectRoundTrip(list);
}

TEST(PickleWriter, MoreSlotsThanAByteCounts) {
  ValueArena arena;
  const Value list = arena.List();
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 1000; ++i) {
      arena.Append(list, arena.Str("name" + std::to_string(i)));
    }
  }
  ExpectRoundTrip(list);
}

TEST(PickleWriter, OpcodesMakeAnObjectWithoutATree) {
  PickleWriter writer;
  writer.Global("torch", "Size");
  writer.Int(2);
  writer.Int(3);
  writer.Tuple2();
  writer.Tuple1();
  writer.Reduce();
  const uint32_t slot = writer.Put();
  writer.EmptyDict();
  writer.Mark();
  writer.Str("a");
  writer.Get(slot);
  writer.SetItems();
  writer.Tuple2();
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(const PickleResult result,
                       ReadPickle(writer.Finish(), arena));
  EXPECT_EQ(ToString(result.root),
            "(torch.Size((2, 3)), {'a': torch.Size((2, 3))})");
}

}  // namespace
}  // namespace dcp
