// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/ranks/flat_vector.h"

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

// A vector with `numel` floats at byte `offset` of file `file`.
TensorEntry VectorAt(uint32_t file, uint64_t offset, int64_t numel) {
  TensorEntry entry;
  entry.shape = {numel};
  entry.boxes = {WholeBox(entry.shape)};
  ChunkLocation& location = entry.locations.emplace_back();
  location.item.file = file;
  location.payload_offset = offset;
  location.located = true;
  return entry;
}

StatePath ParameterPath(const std::string& parameter) {
  return {"model", parameter};
}

TEST(FlatVector, IsCutLikeTorchChunk) {
  FlatVector vector;
  CutEvenly(10, 4, vector);
  EXPECT_THAT(vector.begins, ElementsAre(0, 3, 6, 9));
  EXPECT_THAT(vector.sizes, ElementsAre(3, 3, 3, 3));
  FlatVector small;
  CutEvenly(2, 4, small);
  EXPECT_THAT(small.begins, ElementsAre(0, 1, 2, 2));
}

// Every parameter's every element lies where an element-wise count puts it.
TEST(FlatVector, PiecesBecomeParameters) {
  FlatVector vector;
  vector.name = "w";
  CutEvenly(17, 3, vector);
  vector.parameters = {{"a", {2, 3}, 0, 6},
                       {"none", {0, 3}, 6, 0},
                       {"b", {3, 3}, 8, 9}};  // two elements are padding
  StateCollector collector;
  for (int64_t rank = 0; rank < 3; ++rank) {
    // The last rank leaves out the padding.
    const int64_t numel = rank == 2 ? 5 : 6;
    ASSERT_OK(AddFlatPiece(vector, rank,
                           VectorAt(static_cast<uint32_t>(rank), 100, numel),
                           ParameterPath, collector));
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<CheckpointEntry> entries,
                       std::move(collector).Finish());
  ASSERT_EQ(entries.size(), 3u);
  const int64_t begins[] = {0, 6, 8};
  for (size_t i = 0; i < entries.size(); ++i) {
    SCOPED_TRACE(entries[i].fqn);
    const TensorEntry& tensor = *entries[i].tensor();
    for (size_t c = 0; c < tensor.boxes.size(); ++c) {
      const Box& box = tensor.boxes[c];
      const int64_t first =
          begins[i] + box.offsets[0] * tensor.shape[1] + box.offsets[1];
      EXPECT_EQ(tensor.locations[c].item.file,
                static_cast<uint32_t>(first / 6));
      EXPECT_EQ(tensor.locations[c].payload_offset,
                static_cast<uint64_t>(100 + first % 6 * 4));
    }
  }
  EXPECT_EQ(entries[1].tensor()->shape, Dims({0, 3}));
}

TEST(FlatVector, APieceOfAnotherLengthIsRefused) {
  FlatVector vector;
  vector.name = "w";
  CutEvenly(10, 4, vector);
  vector.parameters = {{"w", {10}, 0, 10}};
  StateCollector collector;
  EXPECT_THAT(
      AddFlatPiece(vector, 1, VectorAt(0, 0, 4), ParameterPath, collector),
      StatusIs(StatusCode::kDataLoss,
               AllOf(HasSubstr("vector of 3 elements"), HasSubstr("rank 1"),
                     HasSubstr("shape [4]"))));
  EXPECT_OK(
      AddFlatPiece(vector, 3, VectorAt(0, 0, 1), ParameterPath, collector));
}

}  // namespace
}  // namespace dcp
