// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/files/source_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::Disk;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;

TEST(SourceFiles, OpensEachFileOnceWhenItIsNeeded) {
  const TempDir dir;
  dir.WriteFile("a", "12345");
  SourceFiles files(Disk(), dir.path(), {"a", "absent"}, DirectMode::kOff,
                    /*follow_symlinks=*/false);
  ASSERT_OK_AND_ASSIGN(const File first, files.Get(0));
  ASSERT_OK_AND_ASSIGN(const File again, files.Get(0));
  EXPECT_EQ(first.handle, again.handle);
  EXPECT_EQ(first.size, 5u);
  EXPECT_EQ(files.Describe(first.handle), "a");
  EXPECT_EQ(files.Describe(first.handle + 1), "");
  EXPECT_EQ(files.FullPath(1), dir.Join("absent"));
  EXPECT_THAT(files.Get(1), StatusIs(absl::StatusCode::kNotFound,
                                     HasSubstr(dir.Join("absent"))));
}

TEST(SourceFiles, CheckRangeRefusesRangesOutsideOfTheFile) {
  const TempDir dir;
  dir.WriteFile("a", "12345");
  SourceFiles files(Disk(), dir.path(), {"a"}, DirectMode::kOff, false);
  EXPECT_OK(files.CheckRange(0, 0, 5));
  EXPECT_OK(files.CheckRange(0, 5, 0));
  EXPECT_THAT(files.CheckRange(0, 2, 4),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("which has 5")));
  EXPECT_THAT(files.CheckRange(0, 6, 0), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(files.CheckRange(0, 2, UINT64_MAX),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(SourceFiles, NoticesAFileThatIsWrittenTo) {
  const TempDir dir;
  for (const char* name : {"a", "b", "c"}) dir.WriteFile(name, "12345");
  SourceFiles files(Disk(), dir.path(), {"a", "b", "c"}, DirectMode::kOff,
                    /*follow_symlinks=*/false);
  EXPECT_EQ(files.OpenedAs(0), std::nullopt);
  ASSERT_OK_AND_ASSIGN(const File a, files.Get(0));
  ASSERT_OK_AND_ASSIGN(const File b, files.Get(1));
  EXPECT_EQ(files.OpenedAs(0)->size, 5u);
  // One name is added, one removed, and one file replaced: the bytes that are
  // read stay the same.
  std::filesystem::create_hard_link(dir.Join("a"), dir.Join("link"));
  EXPECT_OK(files.CheckUnchanged());
  std::filesystem::remove(dir.Join("b"));
  dir.WriteFile("b", "67890");
  EXPECT_OK(files.CheckUnchanged());
  const auto time = std::filesystem::last_write_time(dir.Join("a"));
  dir.WriteFile("a", "54321");
  std::filesystem::last_write_time(dir.Join("a"),
                                   time + std::chrono::seconds(1));
  const auto changed =
      StatusIs(absl::StatusCode::kUnavailable,
               HasSubstr(dir.Join("a") + " changed while it was read"));
  EXPECT_THAT(files.CheckUnchanged(), changed);
  EXPECT_THAT(files.CheckUnchanged({a.handle, b.handle}), changed);
  EXPECT_OK(files.CheckUnchanged({b.handle}));
}

TEST(SourceFiles, TakesOnlyRegularFiles) {
  const TempDir dir;
  dir.WriteFile("directory/file", "");
  ASSERT_EQ(mkfifo(dir.Join("fifo").c_str(), 0600), 0);
  ASSERT_EQ(symlink("/etc/passwd", dir.Join("link").c_str()), 0);
  SourceFiles files(Disk(), dir.path(), {"directory", "fifo", "link"},
                    DirectMode::kOff, false);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_THAT(files.Get(i), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr(files.names()[i])));
  }
}

TEST(SourceFiles, FollowsLinksWhenTold) {
  const TempDir dir;
  dir.WriteFile("blob", "12345");
  ASSERT_EQ(symlink("blob", dir.Join("link").c_str()), 0);
  SourceFiles files(Disk(), dir.path(), {"link"}, DirectMode::kOff,
                    /*follow_symlinks=*/true);
  EXPECT_OK(files.CheckRange(0, 0, 5));
}

}  // namespace
}  // namespace dcp
