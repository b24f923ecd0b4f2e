// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/parts/source_directory.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::Disk;
using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;

TEST(SourceDirectory, FindsNames) {
  const TempDir dir;
  std::filesystem::create_directory(JoinPath(dir.path(), "folder"));
  std::ofstream(JoinPath(dir.path(), "file")) << "text";
  ASSERT_OK_AND_ASSIGN(const SourceDirectory directory,
                       ListDirectory(Disk(), dir.path()));
  EXPECT_TRUE(directory.Has("folder"));
  EXPECT_TRUE(directory.HasDirectory("folder"));
  EXPECT_FALSE(directory.HasFile("folder"));
  EXPECT_TRUE(directory.HasFile("file"));
  EXPECT_FALSE(directory.HasDirectory("file"));
  EXPECT_FALSE(directory.Has("fil"));
  EXPECT_FALSE(directory.Has("folders"));
  ASSERT_OK_AND_ASSIGN(const auto child,
                       OpenChildDirectory(directory, "folder"));
  ASSERT_TRUE(child.has_value());
  EXPECT_EQ(child->path, JoinPath(dir.path(), "folder"));
  ASSERT_OK_AND_ASSIGN(const auto none, OpenChildDirectory(directory, "file"));
  EXPECT_FALSE(none.has_value());
  EXPECT_THAT(ReadText(directory, "file", 4, {}), IsOkAndHolds("text"));
  EXPECT_THAT(ReadText(directory, "file", 3, {}),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(SourceDirectory, APointerStaysInTheDirectory) {
  const TempDir dir;
  const std::string path = JoinPath(dir.path(), "latest");
  std::ofstream(path) << "global_step5\n";
  ASSERT_OK_AND_ASSIGN(const SourceDirectory directory,
                       ListDirectory(Disk(), dir.path()));
  EXPECT_THAT(ReadPointer(directory, "latest", {}),
              IsOkAndHolds("global_step5"));
  for (const char* const bad : {"", "..", ".", "../x", "a/b", "/etc", " \n"}) {
    std::ofstream(path) << bad;
    EXPECT_THAT(ReadPointer(directory, "latest", {}),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr("latest: expected the name of a folder")))
        << bad;
  }
}

}  // namespace
}  // namespace dcp
