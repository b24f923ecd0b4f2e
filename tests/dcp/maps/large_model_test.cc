// SPDX-License-Identifier: Apache-2.0
// The size of DeepSeek V3's plan, which turns 45,395 tensors into 906.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dcp/maps/builtin_mappings.h"
#include "gtest/gtest.h"
#include "tests/testing/deepseek_shapes.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

// Each source is one piece, however many elements it has, and the loops need no
// memory outside the piece.
TEST(LargeModel, HasOnePieceForEachSource) {
  const std::vector<MappingTensor> sources = testing::DeepSeekV3Tensors();
  ASSERT_EQ(sources.size(), 45395u);
  absl::StatusOr<Mapping> mapping = BuiltinMapping("deepseek-v3");
  ASSERT_OK(mapping.status());
  const absl::StatusOr<MappedTensors> mapped =
      mapping->Map(sources, {.from = "hf",
                             .to = "megatron_dist",
                             .config = testing::DeepSeekV3Config()});
  ASSERT_OK(mapped.status());
  EXPECT_EQ(mapped->tensors.size(), 906u);
  EXPECT_EQ(mapped->pieces.size(), sources.size());
  for (const StridedPiece& piece : mapped->pieces) {
    ASSERT_LE(piece.loops.size(), 2u);
    ASSERT_EQ(piece.loops.capacity(), 6u);  // the piece's own capacity
  }
  EXPECT_LT(mapped->pieces.capacity() * sizeof(StridedPiece), size_t{32} << 20);
}

}  // namespace
}  // namespace dcp
