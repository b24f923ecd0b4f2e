// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/parts/state_collector.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A tensor in one chunk at byte `offset` of file `file`, with a record that has
// this CRC-32.
TensorEntry TensorAt(const Dims& shape, uint32_t file, uint64_t offset,
                     uint32_t crc) {
  TensorEntry tensor;
  tensor.shape = shape;
  tensor.boxes = {WholeBox(shape)};
  ChunkLocation& location = tensor.locations.emplace_back();
  location.located = true;
  location.item.file = file;
  location.payload_offset = offset;
  location.record = {.offset = offset, .length = 100, .crc = crc};
  return tensor;
}

CheckpointEntry Entry(TensorEntry tensor) {
  CheckpointEntry entry;
  entry.value = std::move(tensor);
  return entry;
}

CheckpointEntry CollectedObject(int64_t value) {
  ObjectEntry object;
  object.value = Value::Int(value);
  CheckpointEntry entry;
  entry.value = std::move(object);
  return entry;
}

// The elements [begin, end) of a 6-element vector, in file `file`.
StateCollector::Part Range(int64_t begin, int64_t end, uint32_t file) {
  return FlatPart(TensorAt({end - begin}, file, 0, 1), 0, end - begin, {6},
                  begin);
}

std::vector<std::string> CollectedNames(
    const std::vector<CheckpointEntry>& entries) {
  std::vector<std::string> names;
  for (const CheckpointEntry& entry : entries) names.push_back(entry.fqn);
  return names;
}

TEST(StateCollector, PartsBecomeATensor) {
  StateCollector collector;
  ASSERT_OK(collector.AddPart({"model", "w"}, 0, Range(0, 4, 0)));
  ASSERT_OK(collector.AddPart({"model", "w"}, 1, Range(4, 6, 1)));
  ASSERT_OK_AND_ASSIGN(const std::vector<CheckpointEntry> entries,
                       std::move(collector).Finish());
  ASSERT_THAT(CollectedNames(entries), ElementsAre("model.w"));
  EXPECT_EQ(entries[0].path, StatePath({"model", "w"}));
  EXPECT_EQ(entries[0].tensor()->boxes.size(), 2u);
}

TEST(StateCollector, TheFirstOfEqualBoxesCounts) {
  StateCollector collector;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ASSERT_OK(collector.AddPart({"w"}, rank, Range(0, 6, rank)));
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<CheckpointEntry> entries,
                       std::move(collector).Finish());
  ASSERT_EQ(entries[0].tensor()->boxes.size(), 1u);
  EXPECT_EQ(entries[0].tensor()->locations[0].item.file, 0u);
}

TEST(StateCollector, HolesAndOverlapsAreRefused) {
  StateCollector hole;
  ASSERT_OK(hole.AddPart({"w"}, 0, Range(0, 4, 0)));
  EXPECT_THAT(std::move(hole).Finish().status(),
              StatusIs(StatusCode::kDataLoss, HasSubstr("w: ")));
  StateCollector overlap;
  ASSERT_OK(overlap.AddPart({"w"}, 0, Range(0, 4, 0)));
  ASSERT_OK(overlap.AddPart({"w"}, 1, Range(3, 6, 1)));
  EXPECT_THAT(std::move(overlap).Finish().status(),
              StatusIs(StatusCode::kDataLoss, HasSubstr("w: ")));
}

TEST(StateCollector, RanksAgreeOnTypeShapeAndKind) {
  StateCollector collector;
  ASSERT_OK(collector.AddPart({"w"}, 0, Range(0, 4, 0)));
  StateCollector::Part other = Range(4, 6, 1);
  other.dtype = DType::kInt8;
  EXPECT_THAT(collector.AddPart({"w"}, 1, other),
              StatusIs(StatusCode::kDataLoss,
                       AllOf(HasSubstr("int8"), HasSubstr("rank 1"))));
  other = Range(4, 6, 1);
  other.shape = {7};
  EXPECT_THAT(collector.AddPart({"w"}, 1, other),
              StatusIs(StatusCode::kDataLoss,
                       AllOf(HasSubstr("[7]"), HasSubstr("[6]"))));
  EXPECT_THAT(collector.AddValue({"w"}, 1, CollectedObject(1)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("whole value")));
}

TEST(StateCollector, EqualValuesAreKeptOnce) {
  StateCollector collector;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    const int64_t number = rank;
    ASSERT_OK(collector.AddValue({"same"}, number, CollectedObject(5)));
    ASSERT_OK(collector.AddValue({"rng", "cpu"}, number,
                                 Entry(TensorAt({2}, rank, 0, 7 + rank / 2))));
    ASSERT_OK(
        collector.AddValue({"list", 0}, number, CollectedObject(rank == 2)));
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<CheckpointEntry> entries,
                       std::move(collector).Finish());
  EXPECT_THAT(
      CollectedNames(entries),
      ElementsAre("same", "rng.cpu", "rng.cpu@2", "list.0", "list.0@2"));
}

// Otherwise, the ranks' files from two saves look whole.
TEST(StateCollector, RefusesRanksAtDifferentSteps) {
  StateCollector collector;
  const StatePath of_state = {"optimizer", "state", "w", "step"};
  const StatePath of_group = {"optimizer", "param_groups", 0, "step"};
  ASSERT_OK(collector.AddValue(of_state, 0, Entry(TensorAt({}, 0, 0, 7))));
  ASSERT_OK(collector.AddValue(of_state, 1, Entry(TensorAt({}, 1, 0, 7))));
  EXPECT_THAT(collector.AddValue(of_state, 2, Entry(TensorAt({}, 2, 0, 8))),
              StatusIs(StatusCode::kDataLoss,
                       HasSubstr("optimizer.state.w.step of rank 2 differs "
                                 "from that of rank 0")));
  ASSERT_OK(collector.AddValue(of_group, 0, CollectedObject(3)));
  EXPECT_THAT(collector.AddValue(of_group, 1, CollectedObject(4)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("different steps")));
  // Other values may differ between ranks.
  ASSERT_OK(collector.AddValue({"step"}, 0, CollectedObject(3)));
  ASSERT_OK(collector.AddValue({"step"}, 1, CollectedObject(4)));
}

// The matrix has 3 columns and 4-byte elements.
TEST(StateCollector, APartOfAChunkKeepsItsStrides) {
  const ChunkLocation rows =
      NarrowToBox(TensorAt({4, 3}, 0, 1000, 1), {{1, 0}, {2, 3}});
  EXPECT_EQ(rows.payload_offset, 1012u);
  EXPECT_TRUE(rows.strides.empty());
  const ChunkLocation columns =
      NarrowToBox(TensorAt({4, 3}, 0, 1000, 1), {{0, 1}, {4, 2}});
  EXPECT_EQ(columns.payload_offset, 1004u);
  EXPECT_EQ(columns.strides, Dims({3, 1}));
}

TEST(StateCollector, AFlatPartOfEverySecondElement) {
  TensorEntry vector = TensorAt({9}, 0, 0, 1);
  vector.locations[0].strides = {2};
  const StateCollector::Part part = FlatPart(vector, 3, 4, {2, 3}, 1);
  ASSERT_EQ(part.boxes.size(), 2u);
  EXPECT_EQ(part.boxes[0], (Box{{0, 1}, {1, 2}}));
  EXPECT_EQ(part.locations[0].payload_offset, 24u);
  EXPECT_EQ(part.boxes[1], (Box{{1, 0}, {1, 2}}));
  EXPECT_EQ(part.locations[1].payload_offset, 40u);
  EXPECT_EQ(part.locations[1].strides.back(), 2);
}

}  // namespace
}  // namespace dcp
