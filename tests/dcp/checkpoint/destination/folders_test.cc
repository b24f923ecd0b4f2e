// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/destination/folders.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "dcp/io/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::Disk;
using ::dcp::testing::TempDir;
using ::testing::ElementsAre;

TEST(Folders, ListsTheFoldersInNames) {
  Output output;
  for (const char* const name : {"b/c/x", "a", "b/y", "b-/z"}) {
    output.files.push_back({.layout = FileLayout(name), .literal = nullptr});
  }
  EXPECT_THAT(OutputFolders(output), ElementsAre("b", "b-", "b/c"));
}

TEST(Folders, AreMadeAndRemoved) {
  const TempDir dir;
  const std::string root = dir.Join("root");
  std::filesystem::create_directory(root);
  ASSERT_OK(MakeFolders(Disk(), root, {"a", "a/b", "c"}));
  ASSERT_OK(MakeFolders(Disk(), root, {"a"}));  // again
  for (const char* const name : {"/a/kept", "/a/b/gone", "/c/gone"}) {
    std::ofstream(root + name) << "x";
  }
  ASSERT_OK(RemoveFolders(Disk(), root, {"a/kept"}));
  EXPECT_TRUE(std::filesystem::exists(root + "/a/kept"));
  EXPECT_FALSE(std::filesystem::exists(root + "/a/b/gone"));
  EXPECT_FALSE(std::filesystem::exists(root + "/c/gone"));
  ASSERT_OK(RemoveFolders(Disk(), root, {}));
  EXPECT_FALSE(std::filesystem::exists(root));
}

}  // namespace
}  // namespace dcp
