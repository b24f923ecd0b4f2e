// SPDX-License-Identifier: Apache-2.0

#include "server/process/option_value.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

using ::dcp::testing::kInvalid;

TEST(OptionValue, SizesHaveUnits) {
  EXPECT_THAT(ParseBytes("2GiB"), IsOkAndHolds(uint64_t{2} << 30));
  EXPECT_THAT(ParseBytes(" 512 mib "), IsOkAndHolds(uint64_t{512} << 20));
  EXPECT_THAT(ParseBytes("64K"), IsOkAndHolds(uint64_t{64} << 10));
  EXPECT_THAT(ParseBytes("5GB"), IsOkAndHolds(uint64_t{5'000'000'000}));
  EXPECT_THAT(ParseBytes("4096"), IsOkAndHolds(uint64_t{4096}));
  for (const char* wrong :
       {"", "GiB", "-1", "1.5GiB", "2GX", "16777216TiB", "1 2", "1e9"}) {
    EXPECT_THAT(ParseBytes(wrong), StatusIs(kInvalid, HasSubstr("such as")))
        << wrong;
  }
}

TEST(OptionValue, TimesHaveUnits) {
  EXPECT_THAT(ParseTime("30s"), IsOkAndHolds(absl::Seconds(30)));
  EXPECT_THAT(ParseTime("10 min"), IsOkAndHolds(absl::Minutes(10)));
  EXPECT_THAT(ParseTime("2h"), IsOkAndHolds(absl::Hours(2)));
  EXPECT_THAT(ParseTime("7d"), IsOkAndHolds(absl::Hours(24 * 7)));
  for (const char* wrong :
       {"", "30", "s", "-1s", "3651d", "9e9d", "18446744073709551615d"}) {
    EXPECT_THAT(ParseTime(wrong), StatusIs(kInvalid, HasSubstr("such as")))
        << wrong;
  }
}

TEST(OptionValue, CountsHaveBounds) {
  EXPECT_THAT(ParseCount("1", 1, 10), IsOkAndHolds(1));
  EXPECT_THAT(ParseCount("10", 1, 10), IsOkAndHolds(10));
  for (const char* wrong : {"", "0", "11", "x", "99999999999999999999"}) {
    EXPECT_THAT(ParseCount(wrong, 1, 10),
                StatusIs(kInvalid, HasSubstr("from 1 to 10")))
        << wrong;
  }
}

TEST(OptionValue, BoolsAreWords) {
  EXPECT_THAT(ParseBool("Yes"), IsOkAndHolds(true));
  EXPECT_THAT(ParseBool("off"), IsOkAndHolds(false));
  EXPECT_THAT(ParseBool(""), StatusIs(kInvalid));
}

TEST(OptionValue, AddressesHaveAPort) {
  for (const char* right : {"127.0.0.1:7420", "[::1]:0", "node-3:80",
                            "unix:/run/a.sock", "0.0.0.0:65535"}) {
    EXPECT_OK(ParseAddress(right, true)) << right;
  }
  for (const char* wrong :
       {"", "127.0.0.1", ":7420", "::1:7420", "[::1:7420",
        "host:", "host:65536", "host:-1", "host:+1", "unix:run"}) {
    EXPECT_THAT(ParseAddress(wrong, true), StatusIs(kInvalid)) << wrong;
  }
  EXPECT_THAT(ParseAddress("unix:/run/a.sock", false), StatusIs(kInvalid));
  EXPECT_OK(ParseAddress("unix:/" + std::string(106, 'x'), true));
  EXPECT_THAT(ParseAddress("unix:/" + std::string(107, 'x'), true),
              StatusIs(kInvalid, HasSubstr("more than 107 bytes")));
}

TEST(OptionValue, LoopbackIsOnlyThisMachine) {
  for (const char* loopback : {"127.0.0.1:1", "127.9.9.9:1", "[::1]:1",
                               "localhost:1", "unix:/run/a.sock"}) {
    EXPECT_TRUE(IsLoopback(loopback)) << loopback;
  }
  for (const char* other : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "node:1",
                            "127.0.0.1.example.com:1", "localhost.evil:1"}) {
    EXPECT_FALSE(IsLoopback(other)) << other;
  }
}

TEST(OptionValue, ParsesFormattedValues) {
  EXPECT_EQ(FormatBytes(uint64_t{2} << 30), "2 GiB");
  EXPECT_EQ(FormatBytes(uint64_t{1536} << 20), "1536 MiB");
  EXPECT_EQ(FormatBytes(4097), "4097 B");
  EXPECT_EQ(FormatTime(absl::Hours(24 * 7)), "7 d");
  EXPECT_EQ(FormatTime(absl::Seconds(90)), "90 s");
  for (uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{5} << 40}) {
    EXPECT_THAT(ParseBytes(FormatBytes(bytes)), IsOkAndHolds(bytes));
    const absl::Duration time = absl::Seconds(bytes % 100000);
    EXPECT_THAT(ParseTime(FormatTime(time)), IsOkAndHolds(time));
  }
}

}  // namespace
}  // namespace dcp::server
