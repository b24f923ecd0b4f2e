// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/crc32_pieces.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "gtest/gtest.h"

namespace dcp {
namespace {

std::vector<uint8_t> RandomBytes(size_t size, std::mt19937& random) {
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

TEST(Crc32Pieces, NoPiecesAreTheCrcOfEmptyInput) {
  EXPECT_EQ(Crc32Pieces().Value(0), 0u);
}

TEST(Crc32Pieces, OnePieceIsTheCrcOfItsBytes) {
  std::mt19937 random(1);
  for (const size_t size : {1, 2, 31, 4096, 100'003}) {
    const std::vector<uint8_t> bytes = RandomBytes(size, random);
    Crc32Pieces pieces;
    pieces.Add(Crc32Pieces::Contribution(bytes, 0));
    EXPECT_EQ(pieces.Value(size), ExtendCrc32(0, bytes)) << size;
  }
}

TEST(Crc32Pieces, AnyCutsInAnyOrderGiveTheCrcOfTheWhole) {
  std::mt19937 random(2);
  for (int round = 0; round < 50; ++round) {
    const std::vector<uint8_t> bytes = RandomBytes(1 + random() % 5000, random);
    std::vector<size_t> cuts = {0, bytes.size()};
    for (int i = 0; i < 7; ++i) cuts.push_back(random() % bytes.size());
    std::sort(cuts.begin(), cuts.end());
    std::vector<size_t> order;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) order.push_back(i);
    std::shuffle(order.begin(), order.end(), random);
    Crc32Pieces pieces;
    for (const size_t i : order) {
      pieces.Add(Crc32Pieces::Contribution(
          ByteSpan(bytes.data() + cuts[i], cuts[i + 1] - cuts[i]),
          bytes.size() - cuts[i + 1]));
    }
    EXPECT_EQ(pieces.Value(bytes.size()), ExtendCrc32(0, bytes));
  }
}

// 5 GiB in which all bytes but the last are zero: for the zeros before the
// first other byte, only their number matters.
TEST(Crc32Pieces, LengthsBeyondFourGigabytesCount) {
  const std::vector<uint8_t> zeros(1 << 20);
  const uint64_t length = uint64_t{5} << 30;
  const uint8_t last = 7;
  uint32_t expected = 0;
  for (uint64_t done = 0; done < length - zeros.size(); done += zeros.size()) {
    expected = ExtendCrc32(expected, zeros);
  }
  expected = ExtendCrc32(expected, ByteSpan(zeros).first(zeros.size() - 1));
  expected = ExtendCrc32(expected, ByteSpan(&last, 1));
  Crc32Pieces pieces;
  pieces.Add(Crc32Pieces::Contribution(ByteSpan(&last, 1), 0));
  EXPECT_EQ(pieces.Value(length), expected);
}

}  // namespace
}  // namespace dcp
