// SPDX-License-Identifier: Apache-2.0

#include "server/access/pinned_path.h"

#include <unistd.h>

#include <filesystem>
#include <string>

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::ReadFile;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;

class PinnedPathTest : public ::testing::Test {
 protected:
  PinnedPathTest()
      : root_(std::filesystem::canonical(dir_.path()).string() + "/root") {
    dir_.WriteFile("root/sub/file", "inside");
    dir_.WriteFile("other/file", "outside");
  }

  const TempDir dir_;
  const std::string root_;
};

TEST_F(PinnedPathTest, KeepsThePlaceAfterRenames) {
  const auto entry =
      PinnedPath::OpenEntry({.root = root_, .path = root_ + "/sub/file"});
  ASSERT_OK(entry);
  const auto directory =
      PinnedPath::OpenDirectory({.root = root_, .path = root_ + "/sub"});
  ASSERT_OK(directory);
  EXPECT_EQ(ReadFile(entry->name()), "inside");
  std::filesystem::rename(root_ + "/sub", root_ + "/moved");
  ASSERT_EQ(symlink(dir_.Join("other").c_str(), (root_ + "/sub").c_str()), 0);
  EXPECT_EQ(ReadFile(entry->name()), "inside");
  EXPECT_EQ(ReadFile(directory->name() + "/file"), "inside");
}

TEST_F(PinnedPathTest, DoesNotFollowLinks) {
  ASSERT_EQ(symlink(dir_.Join("other").c_str(), (root_ + "/out").c_str()), 0);
  ASSERT_EQ(symlink("sub", (root_ + "/in").c_str()), 0);
  for (const char* name : {"/out", "/in"}) {
    EXPECT_THAT(
        PinnedPath::OpenDirectory({.root = root_, .path = root_ + name}),
        StatusIs(absl::StatusCode::kPermissionDenied));
    EXPECT_THAT(
        PinnedPath::OpenEntry({.root = root_, .path = root_ + name + "/file"}),
        StatusIs(absl::StatusCode::kPermissionDenied));
    // The link itself is an entry.
    EXPECT_OK(PinnedPath::OpenEntry({.root = root_, .path = root_ + name}));
  }
  const std::string link = dir_.Join("link");
  ASSERT_EQ(symlink(root_.c_str(), link.c_str()), 0);
  EXPECT_THAT(PinnedPath::OpenDirectory({.root = link, .path = link}),
              StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST_F(PinnedPathTest, ARootIsAnEntry) {
  const auto entry = PinnedPath::OpenEntry({.root = root_, .path = root_});
  ASSERT_OK(entry);
  EXPECT_TRUE(std::filesystem::exists(entry->name() + "/sub/file"));
}

TEST_F(PinnedPathTest, MissingPathsAreNotFound) {
  EXPECT_THAT(
      PinnedPath::OpenDirectory({.root = root_, .path = root_ + "/none"}),
      StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(
      PinnedPath::OpenEntry({.root = root_, .path = root_ + "/none/file"}),
      StatusIs(absl::StatusCode::kNotFound));
  EXPECT_OK(PinnedPath::OpenEntry({.root = root_, .path = root_ + "/none"}));
}

}  // namespace
}  // namespace dcp::server
