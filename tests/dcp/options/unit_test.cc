// SPDX-License-Identifier: Apache-2.0

#include "dcp/options/unit.h"

#include <optional>

#include "gtest/gtest.h"

namespace dcp {
namespace {

TEST(Unit, NamesOfPowersOf1024And1000) {
  EXPECT_EQ(UnitFactor("MiB", ByteUnits()), uint64_t{1} << 20);
  EXPECT_EQ(UnitFactor("m", ByteUnits()), uint64_t{1} << 20);
  EXPECT_EQ(UnitFactor("mb", ByteUnits()), 1'000'000u);
  EXPECT_EQ(UnitFactor("", ByteUnits()), 1u);
  EXPECT_EQ(UnitFactor("PiB", ByteUnits()), std::nullopt);
}

}  // namespace
}  // namespace dcp
