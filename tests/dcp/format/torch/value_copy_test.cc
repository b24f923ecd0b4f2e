// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/torch/value_copy.h"

#include <optional>
#include <string>
#include <vector>

#include "dcp/format/torch/torch_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dcp {
namespace {

Value TensorNamed(ValueArena& arena, absl::string_view key) {
  return MakeTensor(arena, DType::kFloat32, {2}, false, key);
}

// One value of every kind.
Value Everything(ValueArena& arena) {
  const Value call =
      arena.Call(arena.Global("collections", "OrderedDict"), arena.Tuple({}));
  arena.Update(call, {arena.Str("key"), Value::Int(1)});
  arena.Append(call, Value::Bool(true));
  arena.SetState(call, arena.Dict({arena.Str("a"), Value::Float(0.5)}));
  return arena.Tuple({Value(), Value::Bool(false), Value::Int(-5),
                      arena.BigInt(std::string(9, '\1')), Value::Float(-0.0),
                      arena.Str("text"), arena.Bytes("\xff"), arena.Tuple({}),
                      arena.List({Value::Int(1)}),
                      arena.Dict({arena.Str("k"), arena.List()}),
                      arena.Global("torch", "float32"), call,
                      arena.Persistent(arena.Tuple({arena.Str("storage")}))});
}

TEST(ValueCopy, OutlivesTheArenaItCameFrom) {
  ValueArena arena;
  Value copy;
  {
    ValueArena other;
    copy = CopyValue(arena, Everything(other));
  }
  ValueArena again;
  EXPECT_TRUE(DeepEqual(copy, Everything(again))) << ToString(copy, 1000);
  const Value call = copy.items()[11];
  ASSERT_EQ(call.elements().size(), 1u);
  EXPECT_EQ(call.state().items()[1].float_value(), 0.5);
}

TEST(ValueCopy, SharedValuesStayShared) {
  ValueArena arena;
  const Value list = arena.List({Value::Int(1)});
  const Value copy = CopyValue(
      arena, arena.Tuple({list, arena.Dict({arena.Str("again"), list})}));
  EXPECT_NE(copy.items()[0].identity(), list.identity());
  EXPECT_EQ(copy.items()[0].identity(), copy.items()[1].items()[1].identity());
}

// There would be 2^40 values if each path to them were followed.
TEST(ValueCopy, SharedPartsAreCopiedOnce) {
  ValueArena arena;
  Value value = arena.List();
  for (int i = 0; i < 40; ++i) value = arena.List({value, value});
  ValueArena other;
  CopyValue(other, value);
  EXPECT_LE(other.num_values(), 41u);
  int num_tensors = 0;
  ForEachStored(value, [&](const Value&) { ++num_tensors; });
  EXPECT_EQ(num_tensors, 0);
}

TEST(ValueCopy, SubstitutesAreNotLookedInto) {
  ValueArena arena;
  const Value tensor = TensorNamed(arena, "0");
  const Value root = arena.List({tensor, arena.Tuple({tensor})});
  int num_asked_of_tensor = 0;
  const Value copy =
      CopyValue(arena, root, [&](const Value& value) -> std::optional<Value> {
        if (!IsTensor(value)) return std::nullopt;
        ++num_asked_of_tensor;
        return arena.Str("tensor");
      });
  EXPECT_EQ(ToString(copy), "['tensor', ('tensor',)]");
  EXPECT_EQ(num_asked_of_tensor, 1);
}

TEST(ValueCopy, VisitsEachTensorOnceInOrder) {
  ValueArena arena;
  const Value first = TensorNamed(arena, "first");
  const Value second = TensorNamed(arena, "second");
  const Value call =
      arena.Call(arena.Global("collections", "OrderedDict"), arena.Tuple({}));
  arena.Update(call, {arena.Str("w"), second});
  const Value root =
      arena.Dict({arena.Str("a"), arena.Tuple({first, Value::Int(1)}),
                  arena.Str("b"), call, arena.Str("c"), first});
  std::vector<std::string> keys;
  ForEachStored(root, [&](const Value& tensor) {
    keys.emplace_back(ParseTensor(tensor)->storage_key);
  });
  EXPECT_THAT(keys, ::testing::ElementsAre("first", "second"));
}

TEST(ValueCopy, ATensorItselfIsVisited) {
  ValueArena arena;
  int num_tensors = 0;
  ForEachStored(TensorNamed(arena, "0"), [&](const Value&) { ++num_tensors; });
  EXPECT_EQ(num_tensors, 1);
}

TEST(ValueCopy, VisitsTheStoragesOfTensorsOnce) {
  ValueArena arena;
  const Value tensor = TensorNamed(arena, "0");
  std::vector<std::string> keys;
  ForEachStorage(arena.List({tensor, TensorNamed(arena, "1"), tensor}),
                 [&](const Value& storage) {
                   keys.emplace_back(ParseStorage(storage)->key);
                 });
  EXPECT_THAT(keys, ::testing::ElementsAre("0", "1"));
}

}  // namespace
}  // namespace dcp
