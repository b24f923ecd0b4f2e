// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/file_layout.h"

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tests/dcp/plan/random.h"

namespace dcp {
namespace {

// The source of a byte in the file: the part, literal or payload, and the index
// in it.
using Origin = std::tuple<size_t, bool, uint64_t>;

TEST(FileLayout, PartsLieBackToBack) {
  FileLayout layout("model");
  EXPECT_EQ(layout.name(), "model");
  EXPECT_EQ(layout.size(), 0u);
  EXPECT_EQ(layout.Append(3, 10, 7), 0u);
  EXPECT_EQ(layout.Append(5, 0, 0), 1u);
  EXPECT_EQ(layout.size(), 18u);
  EXPECT_EQ(layout.parts()[0].payload_offset(), 3u);
  EXPECT_EQ(layout.parts()[0].payload, 7u);
  EXPECT_EQ(layout.parts()[1].offset, 13u);
  EXPECT_EQ(layout.parts()[1].end(), 18u);
}

TEST(FileLayout, PiecesAreTheRangesBytesInOrder) {
  testing::Random random;
  for (int round = 0; round < 100; ++round) {
    FileLayout layout("file");
    std::vector<Origin> bytes;
    for (int64_t part = random.Uniform(0, 6); part > 0; --part) {
      const auto literal = static_cast<uint64_t>(random.Uniform(0, 4));
      const auto payload = static_cast<uint64_t>(random.Uniform(0, 4));
      const size_t index = layout.Append(literal, payload, 0);
      for (uint64_t i = 0; i < literal; ++i) bytes.emplace_back(index, true, i);
      for (uint64_t i = 0; i < payload; ++i) {
        bytes.emplace_back(index, false, i);
      }
    }
    ASSERT_EQ(layout.size(), bytes.size());
    const auto size = static_cast<int64_t>(bytes.size());
    const int64_t begin = random.Uniform(0, size);
    const int64_t end = random.Uniform(begin, size);
    std::vector<Origin> found;
    layout.ForEachPiece(
        static_cast<uint64_t>(begin), static_cast<uint64_t>(end - begin),
        [&](size_t part, bool literal, uint64_t first, uint64_t last) {
          EXPECT_LT(first, last);
          for (uint64_t i = first; i < last; ++i) {
            found.emplace_back(part, literal, i);
          }
        });
    EXPECT_EQ(found,
              std::vector<Origin>(bytes.begin() + begin, bytes.begin() + end));
  }
}

TEST(FileLayoutDeathTest, RangesLieInTheFile) {
  FileLayout layout("file");
  layout.Append(3, 0, 0);
  const auto ignore = [](size_t, bool, uint64_t, uint64_t) {};
  EXPECT_DEATH(layout.ForEachPiece(2, 2, ignore), "of 3 bytes");
  EXPECT_DEATH(layout.Append(UINT64_MAX, 0, 0), "64 bits");
}

}  // namespace
}  // namespace dcp
