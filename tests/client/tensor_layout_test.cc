// SPDX-License-Identifier: Apache-2.0

#include "client/tensor_layout.h"

#include <string>
#include <vector>

#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp::client {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

using ::dcp::testing::kDataLoss;

TensorLayout::Header HeaderOf(const std::vector<uint64_t>& sizes,
                              uint64_t num_bytes) {
  TensorLayout::Header header;
  header.set_etag("e");
  header.set_num_bytes(num_bytes);
  for (size_t i = 0; i < sizes.size(); ++i) {
    TensorPart* const part = header.add_parts();
    part->set_name("t" + std::to_string(i));
    part->set_num_bytes(sizes[i]);
  }
  return header;
}

// A chunk with `data`, in two pieces. `data` must outlive the chunk.
ReceivedChunk ChunkOf(uint32_t part, uint64_t offset, absl::string_view data) {
  const ByteSpan bytes = AsBytes(data);
  return {.part = part,
          .offset = offset,
          .crc32c = ExtendCrc32c(0, bytes),
          .pieces = {bytes.first(bytes.size() / 2),
                     bytes.subspan(bytes.size() / 2)},
          .num_bytes = bytes.size()};
}

// Two parts, with 4 and 3 bytes.
class TensorRangeTest : public ::testing::Test {
 protected:
  TensorRangeTest() : memory_{std::string(4, '.'), std::string(3, '.')} {
    EXPECT_OK(layout_.Add(HeaderOf({4, 3}, 7)));
    EXPECT_OK(layout_.Allocate(
        [&](size_t i, const TensorPart&) -> absl::StatusOr<std::span<uint8_t>> {
          return std::span(reinterpret_cast<uint8_t*>(memory_[i].data()),
                           memory_[i].size());
        }));
  }

  std::vector<std::string> memory_;
  TensorLayout layout_;
};

TEST(TensorLayout, HeaderMayComeInPieces) {
  TensorLayout layout;
  TensorLayout::Header header = HeaderOf({4}, 7);
  header.set_more(true);
  EXPECT_OK(layout.Add(header));
  EXPECT_FALSE(layout.complete());
  EXPECT_OK(layout.Add(HeaderOf({3}, 7)));
  EXPECT_TRUE(layout.complete());
  EXPECT_EQ(layout.parts().size(), 2);
  EXPECT_EQ(layout.num_bytes(), 7);
}

TEST(TensorLayout, RefusesContradictoryHeaders) {
  const TensorLayout::Header cases[] = {
      HeaderOf({4, 3}, 6), HeaderOf({4, 3}, 8), HeaderOf({UINT64_MAX, 2}, 1),
      HeaderOf({UINT64_MAX, UINT64_MAX}, UINT64_MAX)};
  for (const TensorLayout::Header& header : cases) {
    EXPECT_THAT(TensorLayout().Add(header), StatusIs(kDataLoss));
  }
  TensorLayout layout;
  TensorLayout::Header first = HeaderOf({4}, 7);
  first.set_more(true);
  EXPECT_OK(layout.Add(first));
  TensorLayout::Header other = HeaderOf({3}, 7);
  other.set_etag("other");
  EXPECT_THAT(layout.Add(other), StatusIs(kDataLoss));
  EXPECT_OK(layout.Add(HeaderOf({3}, 7)));
  EXPECT_THAT(layout.Add(HeaderOf({3}, 7)), StatusIs(kDataLoss));
}

TEST_F(TensorRangeTest, ChunksFillTheMemory) {
  TensorRange range(0, 7);
  EXPECT_OK(range.Place(ChunkOf(0, 0, "ab"), layout_));
  EXPECT_OK(range.Place(ChunkOf(0, 2, "cd"), layout_));
  EXPECT_FALSE(range.done());
  EXPECT_OK(range.Place(ChunkOf(1, 0, "efg"), layout_));
  EXPECT_TRUE(range.done());
  EXPECT_EQ(memory_[0], "abcd");
  EXPECT_EQ(memory_[1], "efg");
}

TEST_F(TensorRangeTest, TakesOnlyBytesInTheRange) {
  TensorRange range(1, 5);
  EXPECT_OK(range.Place(ChunkOf(0, 1, "bcd"), layout_));
  EXPECT_OK(range.Place(ChunkOf(1, 0, "efg"), layout_));
  EXPECT_TRUE(range.done());
  EXPECT_EQ(memory_[0], ".bcd");
  EXPECT_EQ(memory_[1], "e..");
}

TEST_F(TensorRangeTest, RefusesWrongChunksAndWritesNothing) {
  ReceivedChunk flipped = ChunkOf(0, 0, "ab");
  flipped.pieces = {AsBytes("aB")};
  struct Case {
    const char* name;
    ReceivedChunk chunk;
    const char* message;
  };
  const Case cases[] = {
      {"no such part", ChunkOf(2, 0, "x"), "part 2 of 2"},
      {"too long", ChunkOf(0, 0, "abcde"), "t0, at byte 0: a message of 5"},
      {"offset beyond", ChunkOf(0, 5, ""), "exceeds"},
      {"offset overflows", ChunkOf(0, UINT64_MAX, "a"), "exceeds"},
      {"skips", ChunkOf(0, 1, "b"), "out of order"},
      {"skips a part", ChunkOf(1, 0, "efg"), "out of order"},
      {"flipped", flipped, "t0, at byte 0: the checksum of 2 bytes is wrong"},
  };
  for (const Case& c : cases) {
    TensorRange range(0, 7);
    EXPECT_THAT(range.Place(c.chunk, layout_),
                StatusIs(kDataLoss, HasSubstr(c.message)))
        << c.name;
    EXPECT_EQ(range.position(), 0);
    EXPECT_EQ(memory_[0] + memory_[1], ".......") << c.name;
  }
}

}  // namespace
}  // namespace dcp::client
