// SPDX-License-Identifier: Apache-2.0

#include "tools/options/option_setters.h"

#include <cstdint>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp::tools {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

struct Line {
  bool flag = false;
  std::string text = "old";
  int64_t number = 5;
};

using ::dcp::testing::kInvalid;

TEST(OptionSetters, StoreInTheField) {
  Line line;
  EXPECT_OK(SetFlag<&Line::flag>("", line));
  EXPECT_TRUE(line.flag);
  EXPECT_OK(SetText<&Line::text>("new", line));
  EXPECT_EQ(line.text, "new");
  EXPECT_OK(SetPositive<&Line::number>("7", line));
  EXPECT_EQ(line.number, 7);
}

TEST(OptionSetters, RefuseAndKeepTheField) {
  Line line;
  EXPECT_THAT(SetText<&Line::text>("", line),
              StatusIs(kInvalid, HasSubstr("'' is not a name")));
  EXPECT_EQ(line.text, "old");
  for (const char* text : {"0", "-1", "x", "", "99999999999999999999"}) {
    EXPECT_THAT(SetPositive<&Line::number>(text, line),
                StatusIs(kInvalid, HasSubstr("is not a number from 1")))
        << text;
  }
  EXPECT_EQ(line.number, 5);
}

}  // namespace
}  // namespace dcp::tools
