// SPDX-License-Identifier: Apache-2.0

#include "proto/utf8.h"

#include <gtest/gtest.h>

#include <string>

#include "google/rpc/status.pb.h"

namespace dcp {
namespace {

TEST(Utf8, KeepsText) {
  for (const char* text :
       {"", "a", "gr\xC3\xBC\xC3\x9F", "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
        "\xED\x9F\xBF", "\xEE\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(IsUtf8(text)) << text;
    EXPECT_EQ(ToUtf8(text), text);
  }
}

TEST(Utf8, ReplacesEachByteThatIsNotText) {
  const std::string u = "\xEF\xBF\xBD";
  EXPECT_EQ(ToUtf8("a\xFF"
                   "b"),
            "a" + u + "b");
  EXPECT_EQ(ToUtf8("\xC3"), u);          // cut off
  EXPECT_EQ(ToUtf8("\xE2\x82"), u + u);  // cut off
  EXPECT_EQ(ToUtf8("\xC0\x80"), u + u);  // overlong
  EXPECT_EQ(ToUtf8("\xE0\x80\x80"), u + u + u);
  EXPECT_EQ(ToUtf8("\xED\xA0\x80"), u + u + u);  // a surrogate
  EXPECT_EQ(ToUtf8("\xF4\x90\x80\x80"), u + u + u + u);
}

// IsUtf8 accepts exactly the same strings as a protobuf field.
TEST(Utf8, AgreesWithProtobuf) {
  std::string text(3, '\0');
  for (const int lead : {0x7F, 0x80, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF,
                         0xF0, 0xF4, 0xF5, 0xFF}) {
    for (int second = 0; second < 256; second += 8) {
      text[0] = static_cast<char>(lead);
      text[1] = static_cast<char>(second);
      text[2] = '\x80';
      // Field 2, with three bytes.
      const std::string wire = std::string("\x12\x03", 2) + text;
      google::rpc::Status parsed;
      EXPECT_EQ(parsed.ParseFromString(wire), IsUtf8(text))
          << lead << " " << second;
    }
  }
}

TEST(Utf8, PrefixDoesNotSplitCharacters) {
  EXPECT_EQ(Utf8Prefix("abc", 3), "abc");
  EXPECT_EQ(Utf8Prefix("abc", 2), "ab");
  EXPECT_EQ(Utf8Prefix("a\xE2\x82\xAC", 3), "a");
  EXPECT_EQ(Utf8Prefix("\xE2\x82\xAC", 1), "");
}

}  // namespace
}  // namespace dcp
