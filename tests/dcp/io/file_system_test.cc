// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/file_system.h"

#include <cerrno>
#include <stop_token>
#include <string>

#include "dcp/base/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Paths, JoinAndParentAreInverse) {
  EXPECT_EQ(JoinPath("a/b", "c"), "a/b/c");
  EXPECT_EQ(JoinPath("a/b/", "c"), "a/b/c");
  EXPECT_EQ(JoinPath("/", "c"), "/c");
  EXPECT_EQ(JoinPath("", "c"), "c");
  EXPECT_EQ(ParentDirectory("a/b"), "a");
  EXPECT_EQ(ParentDirectory("a/b/"), "a");
  EXPECT_EQ(ParentDirectory("a//b"), "a");
  EXPECT_EQ(ParentDirectory("/a"), "/");
  EXPECT_EQ(ParentDirectory("a"), ".");
  EXPECT_EQ(BaseName("a/b"), "b");
  EXPECT_EQ(BaseName("a/b/"), "b");
  EXPECT_EQ(BaseName("b"), "b");
}

TEST(WholeFiles, AreWrittenAndRead) {
  SimStorage fs;
  EXPECT_OK(WriteFile(fs, "/f", "hello"));
  EXPECT_THAT(ReadFile(fs, "/f", 5, true), IsOkAndHolds("hello"));
  EXPECT_OK(WriteFile(fs, "/empty", ""));
  EXPECT_THAT(ReadFile(fs, "/empty", 0, true), IsOkAndHolds(""));
  EXPECT_EQ(fs.num_open_files(), 0u);
}

TEST(WholeFiles, BeyondTheLimitAreNotRead) {
  SimStorage fs;
  EXPECT_OK(WriteFile(fs, "/f", "hello"));
  EXPECT_THAT(ReadFile(fs, "/f", 4, true),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("/f"), HasSubstr("5"), HasSubstr("4"))));
  EXPECT_EQ(fs.num_open_files(), 0u);
}

TEST(WholeFiles, AreReadInBlocksUntilAStop) {
  constexpr uint64_t kNumBlocks = 4;
  const std::string bytes = []() {
    std::string made;
    for (uint64_t i = 0; i < kNumBlocks * kBlockBytes - 1; ++i) {
      made += static_cast<char>(i % 251);
    }
    return made;
  }();
  SimStorage fs;
  ASSERT_OK(WriteFile(fs, "/f", bytes));
  const uint64_t before = fs.num_operations();
  ASSERT_OK_AND_ASSIGN(const std::string whole,
                       ReadFile(fs, "/f", UINT64_MAX, true));
  EXPECT_TRUE(whole == bytes);
  // The file is opened and closed, which does not count.
  EXPECT_EQ(fs.num_operations() - before, 1 + kNumBlocks);
  std::stop_source stop;
  const uint64_t begin = fs.num_operations();
  fs.CallBeforeOperation(2, [&stop] { stop.request_stop(); });
  EXPECT_THAT(ReadFile(fs, "/f", UINT64_MAX, true, stop.get_token()),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("/f")));
  EXPECT_EQ(fs.num_operations() - begin, 3u);
  EXPECT_EQ(fs.num_open_files(), 0u);
}

TEST(WholeFiles, AreNotOverwritten) {
  SimStorage fs;
  EXPECT_OK(WriteFile(fs, "/f", "old"));
  EXPECT_THAT(WriteFile(fs, "/f", "new"),
              StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(ReadFile(fs, "/f", 100, true), IsOkAndHolds("old"));
}

TEST(WholeFiles, LeaveNothingWhenTheyFail) {
  // Create, write, sync.
  for (uint64_t n = 0; n < 3; ++n) {
    SimStorage fs;
    fs.FailOperation(n, EIO);
    EXPECT_THAT(WriteFile(fs, "/f", "hello"),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("/f")));
    EXPECT_THAT(fs.Stat("/f"), StatusIs(absl::StatusCode::kNotFound));
    EXPECT_EQ(fs.num_open_files(), 0u);
    EXPECT_OK(WriteFile(fs, "/f", "hello"));
  }
}

TEST(WholeFiles, SurviveACrashOnceTheDirectoryIsSyncedToo) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimStorage fs({.seed = seed});
    EXPECT_OK(WriteFile(fs, "/f", "hello"));
    EXPECT_OK(fs.SyncDirectory("/"));
    fs.Reboot();
    EXPECT_THAT(ReadFile(fs, "/f", 100, true), IsOkAndHolds("hello"));
  }
}

}  // namespace
}  // namespace dcp
