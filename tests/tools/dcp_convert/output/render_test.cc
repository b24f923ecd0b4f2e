// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/output/render.h"

#include "gtest/gtest.h"

namespace dcp::tools {
namespace {

TEST(Printable, DoesNotChangePlainText) {
  EXPECT_EQ(Printable("model.w 100%"), "model.w 100%");
  EXPECT_EQ(Printable("gr\xc3\xb6\xc3\x9f"
                      "e \xe2\x86\x92 \xf0\x9f\x8d\xac"),
            "gr\xc3\xb6\xc3\x9f"
            "e \xe2\x86\x92 \xf0\x9f\x8d\xac");
}

TEST(Printable, EscapesTerminalControls) {
  EXPECT_EQ(Printable("a\033[2Jb\n\r\x7f"), "a\\x1b[2Jb\\x0a\\x0d\\x7f");
  // U+009B, the C1 form for ESC [.
  EXPECT_EQ(Printable("\xc2\x9b"), "\\xc2\\x9b");
  EXPECT_EQ(Printable(absl::string_view("\0", 1)), "\\x00");
}

// "safe" could be read as something else.
TEST(Printable, EscapesCharactersThatAreInvisibleOrTurnText) {
  EXPECT_EQ(Printable("a\xe2\x80\xae"
                      "b"),
            "a\\u202eb");  // right to left
  EXPECT_EQ(Printable("a\xe2\x81\xa6"
                      "b"),
            "a\\u2066b");  // isolated
  EXPECT_EQ(Printable("a\xe2\x80\x8b"
                      "b"),
            "a\\u200bb");  // zero width
  EXPECT_EQ(Printable("\xef\xbb\xbf"
                      "a"),
            "\\ufeffa");
  EXPECT_EQ(Printable("\xf3\xa0\x81\x81"), "\\U000e0041");  // a tag
  EXPECT_EQ(Printable("\xe2\x82\xac \xf0\x9f\x98\x80"),
            "\xe2\x82\xac \xf0\x9f\x98\x80");
}

TEST(Printable, EscapesInvalidUtf8) {
  EXPECT_EQ(Printable("\xff"), "\\xff");
  EXPECT_EQ(Printable("\xc3"), "\\xc3");                    // cut off
  EXPECT_EQ(Printable("\xc0\xaf"), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(DisplayWidth, CountsCodePoints) {
  EXPECT_EQ(DisplayWidth(""), 0u);
  EXPECT_EQ(DisplayWidth("gr\xc3\xb6\xc3\x9f"
                         "e"),
            5u);
}

TEST(Shorten, CutsAtCodePoints) {
  EXPECT_EQ(Shorten("short", 5), "short");
  EXPECT_EQ(Shorten("longer", 5), "lo...");
  EXPECT_EQ(Shorten("\xc3\xb6\xc3\xb6\xc3\xb6\xc3\xb6\xc3\xb6", 4),
            "\xc3\xb6...");
  EXPECT_EQ(Shorten("longer", 2), "..");
}

TEST(Table, AlignsColumns) {
  Table table({{"NAME"}, {"SIZE", Align::kRight}, {"NOTE"}});
  table.AddRow({"a", "1 kB", ""});
  table.AddRow(
      {"gr\xc3\xb6\xc3\x9f"
       "er",
       "12 kB", "x"});
  EXPECT_EQ(table.Render(),
            "NAME     SIZE  NOTE\n"
            "a        1 kB\n"
            "gr\xc3\xb6\xc3\x9f"
            "er  12 kB  x\n");
  EXPECT_EQ(table.num_rows(), 2u);
}

TEST(Table, WithoutRowsHasOnlyTitles) {
  EXPECT_EQ(Table({{"A"}, {"B"}}).Render(), "A  B\n");
}

TEST(Table, LongCellWidensOnlyOneLine) {
  const std::string long_name(100, 'n');
  Table table({{"NAME"}, {"SIZE", Align::kRight}});
  table.AddRow({"short", "1 kB"});
  table.AddRow({long_name, "12 kB"});
  EXPECT_EQ(table.Render(),
            "NAME    SIZE\nshort   1 kB\n" + long_name + "  12 kB\n");
}

TEST(Table, MakesCellsPrintable) {
  Table table({{"N"}, {"V"}});
  table.AddRow({"\x1b", "v"});
  EXPECT_EQ(table.Render(), "N     V\n\\x1b  v\n");
}

}  // namespace
}  // namespace dcp::tools
