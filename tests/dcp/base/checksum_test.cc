// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/checksum.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace dcp {
namespace {

// Published check values: CRC-32 of "123456789", and XXH3-64 (seed 0) of empty
// input, from xxHash's own sanity test.
constexpr uint32_t kCrcOfDigits = 0xcbf43926;
constexpr uint64_t kDigestOfNothing = 0x2d06800538d394c2;

std::string Pattern(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 131 + 7);
  return text;
}

// CRC-32 by definition, a bit at a time.
uint32_t BitwiseCrc32(ByteSpan bytes) {
  uint32_t crc = ~uint32_t{0};
  for (uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320u : 0u);
    }
  }
  return ~crc;
}

TEST(Crc32, HasThePublishedCheckValue) {
  EXPECT_EQ(ExtendCrc32(0, AsBytes("123456789")), kCrcOfDigits);
}

TEST(Crc32, EmptyInputIsZeroAndChangesNothing) {
  EXPECT_EQ(ExtendCrc32(0, ByteSpan()), 0u);
  EXPECT_EQ(ExtendCrc32(kCrcOfDigits, ByteSpan()), kCrcOfDigits);
}

TEST(Crc32, AgreesWithTheDefinitionForAnyPieces) {
  const std::string text = Pattern(1000);
  const ByteSpan bytes = AsBytes(text);
  const uint32_t expected = BitwiseCrc32(bytes);
  for (size_t cut : {size_t{0}, size_t{1}, size_t{63}, size_t{999}}) {
    const uint32_t head = ExtendCrc32(0, bytes.first(cut));
    EXPECT_EQ(ExtendCrc32(head, bytes.subspan(cut)), expected) << cut;
  }
}

TEST(Digest64, EmptyInputHasThePublishedValue) {
  EXPECT_EQ(Xxh3Digest(ByteSpan()), kDigestOfNothing);
  EXPECT_EQ(Digest64().Value(), kDigestOfNothing);
}

TEST(Digest64, IsTheSameForAnyPieces) {
  const std::string text = Pattern(5000);
  const ByteSpan bytes = AsBytes(text);
  for (size_t step : {size_t{1}, size_t{241}, size_t{5000}}) {
    Digest64 digest;
    for (size_t at = 0; at < bytes.size(); at += step) {
      digest.Update(bytes.subspan(at, std::min(step, bytes.size() - at)));
    }
    EXPECT_EQ(digest.Value(), Xxh3Digest(bytes)) << step;
  }
}

TEST(Digest64, StartsAgainAfterResetAndSurvivesAMove) {
  Digest64 digest;
  digest.Update(AsBytes("abc"));
  Digest64 moved = std::move(digest);
  EXPECT_EQ(moved.Value(), Xxh3Digest(AsBytes("abc")));
  moved.Reset();
  EXPECT_EQ(moved.Value(), kDigestOfNothing);
}

}  // namespace
}  // namespace dcp
