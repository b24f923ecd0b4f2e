// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/pickle/pickle_input.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;

using ::dcp::testing::kDataLoss;

TEST(PickleInput, TakesInOrder) {
  PickleInput input(AsBytes("K\xfe\xff\xff\xffline\nrest"));
  EXPECT_EQ(input.TakeOpcode(), 'K');
  uint64_t number = 0;
  EXPECT_OK(input.TakeNumber<int32_t>(number));
  EXPECT_EQ(static_cast<int64_t>(number), -2);
  absl::string_view text;
  EXPECT_OK(input.TakeLine(text));
  EXPECT_EQ(text, "line");
  EXPECT_EQ(input.at(), 10u);
  EXPECT_OK(input.Take(4, text));
  EXPECT_EQ(text, "rest");
  EXPECT_EQ(input.num_left(), 0u);
}

TEST(PickleInput, TruncatedInputIsRefusedAndNotTaken) {
  PickleInput input(AsBytes("abc"));
  uint64_t number = 0;
  absl::string_view text;
  EXPECT_THAT(input.TakeNumber<uint32_t>(number),
              StatusIs(kDataLoss, "expected 4 bytes, found 3"));
  EXPECT_THAT(
      input.Take(~uint64_t{0}, text),
      StatusIs(kDataLoss, "expected 18446744073709551615 bytes, found 3"));
  EXPECT_THAT(input.TakeLine(text), StatusIs(kDataLoss, "a line has no end"));
  EXPECT_EQ(input.num_left(), 3u);
}

}  // namespace
}  // namespace dcp
