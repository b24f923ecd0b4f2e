// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/nearest_word.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace dcp {
namespace {

TEST(NearestWord, RequiresCloseWords) {
  const std::vector<absl::string_view> words = {"listen", "max-memory", "root",
                                                "overwrite"};
  EXPECT_EQ(NearestWord("max-memroy", words), "max-memory");
  EXPECT_EQ(NearestWord("lsiten", words), "listen");
  EXPECT_EQ(NearestWord("roots", words), "root");
  EXPECT_EQ(NearestWord("overwirte", words), "overwrite");
  EXPECT_EQ(NearestWord("address", words), "");
  EXPECT_EQ(NearestWord("plam", {"json", "plan"}), "plan");
  EXPECT_EQ(NearestWord("plum", {"json", "plan"}), "");
  EXPECT_EQ(NearestWord("jsn", {"json", "plan"}), "json");
}

TEST(NearestWord, SwappedLettersAreOneMistake) {
  EXPECT_EQ(NearestWord("jsno", {"json", "plan"}), "json");
  EXPECT_EQ(NearestWord("sjno", {"json", "plan"}), "");
}

TEST(NearestWord, EmptyAndOverlongWordsHaveNone) {
  EXPECT_EQ(NearestWord("", {"json"}), "");
  EXPECT_EQ(NearestWord("json", {}), "");
  EXPECT_EQ(NearestWord(std::string(1000, 'x'), {"json"}), "");
}

}  // namespace
}  // namespace dcp
