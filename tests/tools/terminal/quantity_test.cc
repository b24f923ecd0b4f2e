// SPDX-License-Identifier: Apache-2.0

#include "tools/terminal/quantity.h"

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp::tools {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

TEST(ParseSize, TakesDecimalAndBinaryUnits) {
  EXPECT_THAT(ParseSize("4096"), IsOkAndHolds(4096));
  EXPECT_THAT(ParseSize("0"), IsOkAndHolds(0));
  EXPECT_THAT(ParseSize("7B"), IsOkAndHolds(7));
  EXPECT_THAT(ParseSize("5GB"), IsOkAndHolds(uint64_t{5'000'000'000}));
  EXPECT_THAT(ParseSize("256MiB"), IsOkAndHolds(uint64_t{256} << 20));
  EXPECT_THAT(ParseSize("2TiB"), IsOkAndHolds(uint64_t{2} << 40));
  EXPECT_THAT(ParseSize("64K"), IsOkAndHolds(64 << 10));
}

TEST(ParseSize, TakesFractions) {
  EXPECT_THAT(ParseSize("1.5GiB"), IsOkAndHolds(uint64_t{3} << 29));
  EXPECT_THAT(ParseSize("0.25kb"), IsOkAndHolds(250));
  EXPECT_THAT(ParseSize("1.9999999999999999B"), IsOkAndHolds(1));
  EXPECT_THAT(ParseSize("1.MB"), IsOkAndHolds(1'000'000));
}

TEST(ParseSize, IgnoresCaseAndSpaces) {
  EXPECT_THAT(ParseSize(" 16 mib "), IsOkAndHolds(16 << 20));
}

TEST(ParseSize, RefusesInvalidSizes) {
  for (const char* text :
       {"", "GB", "-1", "+5GB", "5 G B", "5GBs", "1e9", ".5GB", "0x10", "1,5GB",
        "99999999999999999999", "5 QiB"}) {
    EXPECT_THAT(ParseSize(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)))
        << text;
  }
}

TEST(ParseSize, RefusesMoreThanSixtyFourBits) {
  EXPECT_THAT(ParseSize("16777215TiB"), IsOkAndHolds(uint64_t{16777215} << 40));
  EXPECT_THAT(
      ParseSize("16777216TiB"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("16 EiB")));
}

TEST(FormatBytes, HasThreeDigits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(999), "999 B");
  EXPECT_EQ(FormatBytes(1000), "1.00 kB");
  EXPECT_EQ(FormatBytes(12'849'000), "12.8 MB");
  EXPECT_EQ(FormatBytes(999'499'999), "999 MB");
  EXPECT_EQ(FormatBytes(999'999'999), "1.00 GB");
  EXPECT_EQ(FormatBytes(1'300'000'000'000), "1.30 TB");
  EXPECT_EQ(FormatBytes(~uint64_t{0}), "18.4 EB");
}

TEST(FormatMemory, RoundsUp) {
  EXPECT_EQ(FormatMemory(0), "0 MiB");
  EXPECT_EQ(FormatMemory(1), "1 MiB");
  EXPECT_EQ(FormatMemory(256 << 20), "256 MiB");
  EXPECT_EQ(FormatMemory((256 << 20) + 1), "257 MiB");
  EXPECT_EQ(FormatMemory(~uint64_t{0}), "17592186044416 MiB");
}

TEST(FormatCount, GroupsDigits) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(12'345'678), "12,345,678");
}

TEST(FormatPlural, KnowsOne) {
  EXPECT_EQ(FormatPlural(1, "tensor"), "1 tensor");
  EXPECT_EQ(FormatPlural(0, "tensor"), "0 tensors");
  EXPECT_EQ(FormatPlural(2000, "tensor"), "2,000 tensors");
}

TEST(FormatSeconds, GrowsCoarser) {
  EXPECT_EQ(FormatSeconds(0.021), "0.02 s");
  EXPECT_EQ(FormatSeconds(14.26), "14.3 s");
  EXPECT_EQ(FormatSeconds(59.99), "1:00");
  EXPECT_EQ(FormatSeconds(67), "1:07");
  EXPECT_EQ(FormatSeconds(7509), "2:05:09");
}

}  // namespace
}  // namespace dcp::tools
