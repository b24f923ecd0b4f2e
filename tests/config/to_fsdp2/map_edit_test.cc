// SPDX-License-Identifier: Apache-2.0

#include "config/to_fsdp2/map_edit.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace fsdp::config {
namespace {

std::string Edited(absl::string_view text,
                   const std::function<void(MapEdit&)>& change) {
  std::optional<MapText> map = FindMapText(text, {});
  if (!map.has_value()) return "nothing";
  MapEdit edit(text, *std::move(map));
  change(edit);
  return ApplyEdits(text, edit.Edits());
}

TEST(MapEdit, KeepsTheTextWithoutChanges) {
  EXPECT_EQ(Edited("a: 1 # b\n", [](MapEdit&) {}), "a: 1 # b\n");
}

TEST(MapEdit, KeepsQuotesAroundNames) {
  const auto change = [](MapEdit& edit) {
    edit.Rename(0, "z");
    edit.SetValue(0, "2");
  };
  EXPECT_EQ(Edited("a : 1 # b\n", change), "z : 2 # b\n");
  EXPECT_EQ(Edited("'a': '1'\n", change), "'z': 2\n");
  EXPECT_EQ(Edited("{\"a\": 1}", change), "{\"z\": 2}");
  EXPECT_EQ(Edited("a:  # b\n", change), "z: 2  # b\n");
}

TEST(MapEdit, KeepsCommentsOnRemovedLines) {
  const auto change = [](MapEdit& edit) { edit.Remove(0); };
  EXPECT_EQ(Edited("a: 1\n# of b\nb: 2\n", change), "# of b\nb: 2\n");
  EXPECT_EQ(Edited("a: 1 # c\nb: 2\n", change), "# a: 1 # c\nb: 2\n");
  EXPECT_EQ(Edited("  a:\n  - x # c\n  - y\n  b: 2\n", change),
            "  # a:\n  # - x # c\n  # - y\n  b: 2\n");
}

TEST(MapEdit, RemovesCommasWithEntries) {
  const auto remove = [](const std::vector<size_t>& entries) {
    return [entries](MapEdit& edit) {
      for (const size_t entry : entries) edit.Remove(entry);
    };
  };
  constexpr absl::string_view kText = "{a: 1, b: 2, c: 3}";
  EXPECT_EQ(Edited(kText, remove({0})), "{b: 2, c: 3}");
  EXPECT_EQ(Edited(kText, remove({1})), "{a: 1, c: 3}");
  EXPECT_EQ(Edited(kText, remove({2})), "{a: 1, b: 2}");
  EXPECT_EQ(Edited(kText, remove({1, 2})), "{a: 1}");
  EXPECT_EQ(Edited(kText, remove({0, 2})), "{b: 2}");
  EXPECT_EQ(Edited(kText, remove({0, 1, 2})), "{}");
}

TEST(MapEdit, AppendsAfterTheLastKeptEntry) {
  const auto change = [](MapEdit& edit) {
    edit.Append("y", "8");
    edit.Append("z", "9");
    edit.Remove(1);
  };
  EXPECT_EQ(Edited("a: 1\nb: 2\n# end\n", change), "a: 1\ny: 8\nz: 9\n# end\n");
  EXPECT_EQ(Edited("a: 1\r\nb: 2\r\n", change), "a: 1\r\ny: 8\r\nz: 9\r\n");
  EXPECT_EQ(Edited("{'a': 1, 'b': 2}", change), "{'a': 1, 'y': 8, 'z': 9}");
  EXPECT_EQ(Edited("{\n  \"a\": 1,\n  \"b\": 2\n}\n", change),
            "{\n  \"a\": 1,\n  \"y\": 8,\n  \"z\": 9\n}\n");
}

TEST(MapEdit, AppendsWithoutKeptEntries) {
  const auto change = [](MapEdit& edit) {
    edit.Remove(0);
    edit.Remove(1);
    edit.Append("y", "8");
    edit.Append("z", "9");
  };
  EXPECT_EQ(Edited("{a: 1, b: 2}", change), "{y: 8, z: 9}");
  EXPECT_EQ(Edited("{\n  a: 1,\n  b: 2\n}\n", change),
            "{\n  y: 8,\n  z: 9\n}\n");
  EXPECT_EQ(Edited("a: 1\nb: 2\n", change), "y: 8\nz: 9\n");
}

TEST(MapEdit, AppendsAfterALastLineWithoutNewline) {
  EXPECT_EQ(Edited("a: 1", [](MapEdit& edit) { edit.Append("z", "9"); }),
            "a: 1\nz: 9");
}

}  // namespace
}  // namespace fsdp::config
