// SPDX-License-Identifier: Apache-2.0

#include "dcp/options/option_help.h"

#include <string>

#include "gtest/gtest.h"

namespace dcp {
namespace {

TEST(AppendOptionHelp, HasTwoColumns) {
  std::string text = "Options:\n";
  AppendOptionHelp("--to NAME", "where to go\nor to stay", 12, text);
  EXPECT_EQ(text,
            "Options:\n"
            "  --to NAME where to go\n"
            "            or to stay\n");
}

TEST(AppendOptionHelp, ALongHeadHasASeparateLine) {
  std::string text;
  AppendOptionHelp("--where NAME", "where to go", 12, text);
  EXPECT_EQ(text,
            "  --where NAME\n"
            "            where to go\n");
}

}  // namespace
}  // namespace dcp
