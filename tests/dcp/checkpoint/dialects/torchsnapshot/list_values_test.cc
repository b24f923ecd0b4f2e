// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/torchsnapshot/list_values.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/format/torch/state_path.h"
#include "dcp/format/value/value.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dcp {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

CheckpointEntry Object(Value value) {
  ObjectEntry object;
  object.value = value;
  CheckpointEntry entry;
  entry.value = std::move(object);
  return entry;
}

CheckpointEntry Tensor() {
  CheckpointEntry entry;
  entry.value = TensorEntry();
  return entry;
}

RankValue Number(int64_t rank, StatePath path, int64_t number) {
  return {{rank, std::move(path)}, Object(Value::Int(number))};
}

// "rank name: value" for each value after the lists were joined.
std::vector<std::string> Joined(std::vector<RankValue> values,
                                const std::vector<RankPath>& lists = {},
                                const std::vector<RankPath>& others = {}) {
  ValueArena arena;
  JoinLists(others, lists, /*file=*/7, arena, values);
  std::vector<std::string> texts;
  for (const RankValue& value : values) {
    const ObjectEntry* const object = value.entry.object();
    texts.push_back(absl::StrCat(
        value.place.first, " ", PathToName(value.place.second), ": ",
        object == nullptr ? "tensor" : ToString(object->value)));
  }
  return texts;
}

TEST(ListValues, PlainListsBecomeOneValue) {
  EXPECT_THAT(Joined({Number(0, {"a"}, 1), Number(0, {"l", 1}, 3),
                      Number(0, {"l", 0}, 2), Number(1, {"l", 0}, 4)}),
              ElementsAre("0 a: 1", "0 l: [2, 3]", "1 l: [4]"));
}

TEST(ListValues, ListsOfListsAreJoinedFromTheInside) {
  EXPECT_THAT(Joined({Number(0, {"l", 0, 0}, 1), Number(0, {"l", 0, 1}, 2),
                      Number(0, {"l", 1}, 3), Number(0, {"d", 0, "k", 0}, 4)}),
              ElementsAre("0 l: [[1, 2], 3]", "0 d.0.k: [4]"));
}

TEST(ListValues, TensorsAndDictsKeepAListApart) {
  std::vector<RankValue> values = {Number(0, {"l", 0}, 1)};
  values.push_back({{0, {"l", 1}}, Tensor()});
  EXPECT_THAT(Joined(std::move(values)),
              ElementsAre("0 l.0: 1", "0 l.1: tensor"));
  EXPECT_THAT(Joined({Number(0, {"l", 0}, 1), Number(0, {"l", 1, "k"}, 2)}),
              ElementsAre("0 l.0: 1", "0 l.1.k: 2"));
  // A sharded tensor is not among the values.
  EXPECT_THAT(Joined({Number(0, {"l", 0}, 1)}, {}, {{0, {"l", 1}}}),
              ElementsAre("0 l.0: 1"));
}

TEST(ListValues, AnObjectThatCannotBeReadKeepsAListApart) {
  std::vector<RankValue> values = {Number(0, {"l", 0}, 1)};
  ObjectEntry object;
  object.unreadable = absl::UnimplementedError("no");
  CheckpointEntry entry;
  entry.value = std::move(object);
  values.push_back({{0, {"l", 1}}, std::move(entry)});
  EXPECT_THAT(Joined(std::move(values)),
              ElementsAre("0 l.0: 1", "0 l.1: None"));
}

TEST(ListValues, ListsWithGapsStayApart) {
  EXPECT_THAT(Joined({Number(0, {"l", 0}, 1), Number(0, {"l", 2}, 2)}),
              ElementsAre("0 l.0: 1", "0 l.2: 2"));
}

TEST(ListValues, ListsWithoutElementsAreEmpty) {
  EXPECT_THAT(Joined({}, {{0, {"l"}}}), ElementsAre("0 l: []"));
  EXPECT_THAT(Joined({}, {{0, {"l"}}, {0, {"l", 0}}, {0, {"l", 1}}}),
              ElementsAre("0 l: [[], []]"));
  // Replicated values stand under rank 0 only.
  EXPECT_THAT(Joined({Number(0, {"l", 0}, 1)}, {{0, {"l"}}, {1, {"l"}}}),
              ElementsAre("0 l: [1]"));
  EXPECT_THAT(Joined({}, {}), IsEmpty());
}

TEST(ListValues, NewListsBelongToTheGivenFile) {
  ValueArena arena;
  std::vector<RankValue> values = {Number(0, {"l", 0}, 1)};
  JoinLists({}, {}, /*file=*/7, arena, values);
  EXPECT_EQ(values[0].entry.object()->item.file, 7);
  EXPECT_TRUE(values[0].entry.object()->located);
}

}  // namespace
}  // namespace dcp
