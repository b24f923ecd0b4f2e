// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <string>

#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "gtest/gtest.h"

namespace dcp {
namespace {

// Follows the definition, one bit at a time.
uint32_t Bitwise(ByteSpan bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    }
  }
  return ~crc;
}

std::string Crc32cPattern(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * i + 7 * i);
  return text;
}

// RFC 3720, B.4, and the check value in the CRC catalogue.
TEST(Crc32c, HasPublishedValues) {
  EXPECT_EQ(ExtendCrc32c(0, AsBytes("123456789")), 0xe3069283u);
  EXPECT_EQ(ExtendCrc32c(0, AsBytes(std::string(32, '\0'))), 0x8a9136aau);
  EXPECT_EQ(ExtendCrc32c(0, AsBytes(std::string(32, '\xff'))), 0x62a8ab43u);
  EXPECT_EQ(ExtendCrc32c(0, {}), 0u);
}

TEST(Crc32c, AgreesWithTheDefinitionAtEveryLength) {
  const std::string text = Crc32cPattern(60'000);
  for (size_t size : {0, 1, 7, 8, 9, 255, 767, 768, 769, 1536, 5000, 24'575,
                      24'576, 24'577, 50'001, 59'000}) {
    for (const size_t begin : {0, 1, 5}) {
      const ByteSpan bytes = AsBytes(text).subspan(begin, size);
      const uint32_t want = Bitwise(bytes);
      EXPECT_EQ(ExtendCrc32c(0, bytes), want) << size;
      EXPECT_EQ(ExtendCrc32cPortable(0, bytes), want) << size;
    }
  }
}

TEST(Crc32c, PiecesGiveTheCrcOfTheWhole) {
  const std::string text = Crc32cPattern(100'000);
  const ByteSpan bytes = AsBytes(text);
  const uint32_t whole = ExtendCrc32c(0, bytes);
  for (const size_t cut : {0, 1, 777, 50'000, 99'999, 100'000}) {
    const uint32_t head = ExtendCrc32c(0, bytes.first(cut));
    EXPECT_EQ(ExtendCrc32c(head, bytes.subspan(cut)), whole) << cut;
  }
}

}  // namespace
}  // namespace dcp
