// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/bytes.h"

#include <cstdint>
#include <limits>
#include <optional>

#include "gtest/gtest.h"

namespace dcp {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

TEST(Bytes, CheckedAddRefusesOverflow) {
  EXPECT_EQ(CheckedAdd(kMax - 1, 1), std::optional<uint64_t>(kMax));
  EXPECT_EQ(CheckedAdd(kMax, 1), std::nullopt);
  EXPECT_EQ(CheckedAdd(kMax, kMax), std::nullopt);
}

TEST(Bytes, CheckedMulRefusesOverflow) {
  EXPECT_EQ(CheckedMul(kMax, 1), std::optional<uint64_t>(kMax));
  EXPECT_EQ(CheckedMul(kMax, 0), std::optional<uint64_t>(0));
  EXPECT_EQ(CheckedMul(uint64_t{1} << 32, uint64_t{1} << 32), std::nullopt);
}

TEST(Bytes, AlignmentKeepsMultiplesAndRoundsOthers) {
  EXPECT_EQ(AlignDown(4096, 4096), 4096u);
  EXPECT_EQ(AlignUp(4096, 4096), 4096u);
  EXPECT_EQ(AlignDown(4097, 4096), 4096u);
  EXPECT_EQ(AlignUp(4097, 4096), 8192u);
  EXPECT_EQ(AlignUp(0, 64), 0u);
}

TEST(Bytes, LittleEndianLoadsFromAnyAddress) {
  const uint8_t bytes[] = {0xff, 0x78, 0x56, 0x34, 0x12};
  EXPECT_EQ(LoadLittleEndian<uint32_t>(bytes + 1), 0x12345678u);
  EXPECT_EQ(LoadLittleEndian<uint16_t>(bytes + 1), 0x5678u);
}

TEST(Bytes, TextAndBytesViewTheSameMemory) {
  const absl::string_view text("a\0b", 3);
  EXPECT_EQ(AsText(AsBytes(text)), text);
  EXPECT_EQ(AsBytes(text)[2], 'b');
}

}  // namespace
}  // namespace dcp
