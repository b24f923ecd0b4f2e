// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/glob_set.h"

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace dcp {
namespace {

TEST(GlobSet, MatchesAsEachGlobDoes) {
  const std::vector<std::string> words = {
      "a",     "b",    "*",      "?",    "]",           "!",    "-",    ".",
      "\\a",   "\\*",  "\\[",    "[ab]", "[!a]",        "[^-]", "[]a]", "[!]]",
      "[a-b]", "[*?]", "[a\\]]", "[--]", "[[:alpha:]]", "[",    "\\",   "**"};
  const std::vector<std::string> letters = {"a", "b", "-", "]",  "!",
                                            ".", "[", "*", "\\", "\xff"};
  std::mt19937_64 random(12);
  const auto text = [&](const std::vector<std::string>& from, size_t most) {
    std::string made;
    for (size_t i = random() % (most + 1); i > 0; --i) {
      made += from[random() % from.size()];
    }
    return made;
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> globs;
    for (size_t i = random() % 60; i > 0; --i) globs.push_back(text(words, 6));
    const GlobSet set(globs);
    for (int i = 0; i < 5; ++i) {
      const std::string name = text(letters, 8);
      std::vector<bool> expected(globs.size());
      std::optional<size_t> last;
      for (size_t g = 0; g < globs.size(); ++g) {
        expected[g] = MatchesGlob(globs[g], name);
        if (expected[g]) last = g;
      }
      std::vector<bool> matched(globs.size());
      EXPECT_EQ(set.Match(name, matched), last.has_value());
      ASSERT_EQ(matched, expected) << "seed 12: '" << name << "'";
      ASSERT_EQ(set.MatchesAny(name), last.has_value());
      ASSERT_EQ(set.LastMatch(name), last);
    }
  }
}

// One by one these would take hours.
TEST(GlobSet, ManyGlobsWithManyStarsAreFast) {
  std::vector<std::string> globs;
  for (int i = 0; i < 1000; ++i) {
    std::string& glob = globs.emplace_back();
    for (int star = 0; star < 20; ++star) absl::StrAppend(&glob, "*", "a");
    absl::StrAppend(&glob, "*", i, "z");
  }
  const GlobSet set(globs);
  for (int i = 0; i < 50; ++i) {
    const std::string name = std::string(1000, 'a') + absl::StrCat(i, "y");
    EXPECT_FALSE(set.MatchesAny(name));
    EXPECT_EQ(set.LastMatch(absl::StrCat(name, 999, "z")), 999u);
  }
}

}  // namespace
}  // namespace dcp
