// SPDX-License-Identifier: Apache-2.0

#include "server/process/log_text.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace dcp::server {
namespace {

TEST(LogText, OneWordIsUnchanged) {
  EXPECT_EQ(LogText("/data/step-10"), "/data/step-10");
  EXPECT_EQ(LogText("ipv6:[::1]:80"), "ipv6:[::1]:80");
}

TEST(LogText, QuotesOtherText) {
  EXPECT_EQ(LogText(""), "\"\"");
  EXPECT_EQ(LogText("two words"), "\"two words\"");
  EXPECT_EQ(LogText("x\nevent=fake"), "\"x\\nevent=fake\"");
  EXPECT_EQ(LogText("\x1b[2J"), "\"\\033[2J\"");
  EXPECT_EQ(LogText("a\"b"), "\"a\\\"b\"");
  EXPECT_EQ(LogText("\xff"), "\"\\377\"");
}

TEST(LogText, RecognizesJsonNumbers) {
  for (const char* number : {"0", "-1", "10", "0.021", "73400320"}) {
    EXPECT_TRUE(IsJsonNumber(number)) << number;
    EXPECT_EQ(LogText(number), absl::StrCat("\"", number, "\""));
  }
  for (const char* text : {"", "-", "01", "1.", ".5", "1e5", "1.2.3", "0x1"}) {
    EXPECT_FALSE(IsJsonNumber(text)) << text;
  }
}

TEST(LogText, CutsLongText) {
  const std::string text(kMaxLogTextBytes, 'x');
  EXPECT_EQ(LogText(text), text);
  EXPECT_EQ(LogText(text + "y"), text + "...");
}

}  // namespace
}  // namespace dcp::server
