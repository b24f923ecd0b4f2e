#include "dcp/io/file_system.h"

#include <cerrno>
#include <string>

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
