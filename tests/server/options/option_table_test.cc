// SPDX-License-Identifier: Apache-2.0

#include "server/options/option_table.h"

#include <set>
#include <string>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

TEST(OptionTable, KeysAreUnique) {
  std::set<absl::string_view> keys;
  for (const OptionRow& row : AllOptions()) {
    EXPECT_TRUE(keys.insert(row.key).second) << row.key;
    EXPECT_EQ(FindOption(row.key), &row);
  }
  EXPECT_EQ(FindOption("help"), nullptr);
}

TEST(OptionTable, AcceptsDefaultsInHelp) {
  for (const OptionRow& row : AllOptions()) {
    if (row.show == nullptr) continue;
    ServerOptions options;
    const std::string text = row.show(options);
    if (text.empty()) continue;
    EXPECT_OK(row.apply(text, options)) << row.key << " " << text;
    EXPECT_EQ(row.show(options), text) << row.key;
  }
}

TEST(OptionTable, HelpLinesAreShort) {
  for (const OptionRow& row : AllOptions()) {
    for (absl::string_view line : absl::StrSplit(row.help, '\n')) {
      EXPECT_LE(line.size(), 53u) << line;
    }
  }
}

}  // namespace
}  // namespace dcp::server
