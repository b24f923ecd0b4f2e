// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/pickle/pickle_text.h"

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dcp {
namespace {

using ::testing::Optional;

TEST(PickleText, Utf8MayHoldSurrogatesButNoOtherErrors) {
  EXPECT_TRUE(IsPickleUtf8(""));
  EXPECT_TRUE(IsPickleUtf8("plain ascii, longer than a word"));
  EXPECT_TRUE(IsPickleUtf8("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"));
  EXPECT_TRUE(IsPickleUtf8("\xed\xa0\x80"));  // U+D800
  EXPECT_FALSE(IsPickleUtf8("\xff"));
  EXPECT_FALSE(IsPickleUtf8("\x80"));
  EXPECT_FALSE(IsPickleUtf8("\xc0\x80"));             // overlong
  EXPECT_FALSE(IsPickleUtf8("\xe0\x80\x80"));         // overlong
  EXPECT_FALSE(IsPickleUtf8("\xf4\x90\x80\x80"));     // past U+10FFFF
  EXPECT_FALSE(IsPickleUtf8("12345678\xe2\x82"));     // cut
  EXPECT_FALSE(IsPickleUtf8("1234567\xc3 2345678"));  // no continuation
}

TEST(PickleText, Latin1GoesThroughUtf8AndBack) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  EXPECT_THAT(Latin1FromUtf8(Utf8FromLatin1(all)), Optional(all));
  EXPECT_EQ(Latin1FromUtf8("\xc4\x80"), std::nullopt);  // U+0100
}

TEST(PickleText, PlainNamesAreDottedIdentifiers) {
  EXPECT_TRUE(IsPlainName("torch.nn.parameter"));
  EXPECT_FALSE(IsPlainName(""));
  EXPECT_FALSE(IsPlainName("os\nsystem"));
  EXPECT_FALSE(IsPlainName("caf\xc3\xa9"));
}

TEST(PickleText, ShortestIntKeepsTheSign) {
  EXPECT_EQ(ShortestInt(absl::string_view("\0\0", 2)), "");
  EXPECT_EQ(ShortestInt(absl::string_view("\xff\0\0", 3)),
            absl::string_view("\xff\0", 2));
  EXPECT_EQ(ShortestInt("\xff\xff"), "\xff");
  EXPECT_EQ(ShortestInt("\x7f\xff"), "\x7f\xff");
}

TEST(PickleText, ParsesDecimalIntegersOfAnyLength) {
  EXPECT_THAT(ParseDecimalInt("0"), Optional(std::string()));
  EXPECT_THAT(ParseDecimalInt("-1"), Optional(std::string("\xff")));
  EXPECT_THAT(ParseDecimalInt("+128"), Optional(std::string("\x80\0", 2)));
  EXPECT_THAT(ParseDecimalInt("-128"), Optional(std::string("\x80")));
  EXPECT_THAT(ParseDecimalInt("18446744073709551616"),
              Optional(std::string("\0\0\0\0\0\0\0\0\1", 9)));
  EXPECT_EQ(ParseDecimalInt(""), std::nullopt);
  EXPECT_EQ(ParseDecimalInt("-"), std::nullopt);
  EXPECT_EQ(ParseDecimalInt("0x10"), std::nullopt);
  EXPECT_EQ(ParseDecimalInt(std::string(4301, '1')), std::nullopt);
}

TEST(PickleText, ParsesPython2StringLiterals) {
  EXPECT_THAT(ParseQuotedString("'it\\'s\\n\\x41'"),
              Optional(std::string("it's\nA")));
  EXPECT_THAT(ParseQuotedString("\"a'b\""), Optional(std::string("a'b")));
  EXPECT_EQ(ParseQuotedString("'a"), std::nullopt);
  EXPECT_EQ(ParseQuotedString("'"), std::nullopt);
  EXPECT_EQ(ParseQuotedString("abc"), std::nullopt);
  EXPECT_EQ(ParseQuotedString("'\\x4'"), std::nullopt);
  EXPECT_EQ(ParseQuotedString("'\\q'"), std::nullopt);
  EXPECT_EQ(ParseQuotedString("'\\'"), std::nullopt);
}

TEST(PickleText, RawUnicodeEscapes) {
  EXPECT_THAT(ParseRawUnicode("a\\u20ac\xe9\\n"),
              Optional(std::string("a\u20ac\u00e9\\n")));
  EXPECT_THAT(ParseRawUnicode("\\U0001f600"),
              Optional(std::string("\U0001f600")));
  EXPECT_EQ(ParseRawUnicode("\\u20a"), std::nullopt);
  EXPECT_EQ(ParseRawUnicode("\\U00110000"), std::nullopt);
}

}  // namespace
}  // namespace dcp
