// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/sim_storage.h"

#include <cerrno>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/io/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kPage = SimDisk::kPageBytes;

std::string Contents(FileSystem& fs, absl::string_view path) {
  return ReadFile(fs, path, UINT64_MAX, true).value_or("(none)");
}

absl::Status WriteUnsynced(FileSystem& fs, absl::string_view path,
                           absl::string_view bytes) {
  DCP_ASSIGN_OR_RETURN(const File file, fs.Create(path, 0, DirectMode::kOff));
  DCP_RETURN_IF_ERROR(fs.Write(file, 0, AsBytes(bytes)));
  return fs.Close(file);
}

TEST(SimStorage, KeepsSyncedData) {
  SimStorage fs;
  EXPECT_OK(fs.MakeDirectory("/d"));
  EXPECT_OK(WriteFile(fs, "/d/f", "hello"));
  EXPECT_OK(fs.SyncDirectory("/d"));
  EXPECT_OK(fs.SyncDirectory("/"));
  fs.Reboot();
  EXPECT_EQ(Contents(fs, "/d/f"), "hello");
}

// All possible contents after a crash: "old" was synced, then overwritten by
// three pages without a sync.
TEST(SimStorage, KeepsAnyPagesOfUnsyncedData) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SimStorage fs({.seed = seed});
    const std::string old(3 * kPage, 'o');
    ASSERT_OK_AND_ASSIGN(const File file, fs.Create("/f", 0, DirectMode::kOff));
    EXPECT_OK(fs.Write(file, 0, AsBytes(old)));
    EXPECT_OK(fs.Sync(file));
    EXPECT_OK(fs.SyncDirectory("/"));
    EXPECT_OK(fs.Write(file, 0, AsBytes(std::string(3 * kPage, 'n'))));
    fs.Reboot();
    const std::string left = Contents(fs, "/f");
    ASSERT_EQ(left.size(), 3 * kPage);
    std::string pages;
    for (uint64_t page = 0; page < 3; ++page) {
      pages += left[page * kPage];
      EXPECT_EQ(left.substr(page * kPage, kPage),
                std::string(kPage, left[page * kPage]));
    }
    seen.insert(pages);
  }
  EXPECT_EQ(seen.size(), 8u);
}

TEST(SimStorage, LosesUnsyncedNamesEvenOfSyncedFiles) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SimStorage fs({.seed = seed});
    EXPECT_OK(WriteFile(fs, "/a", "A"));
    EXPECT_OK(WriteFile(fs, "/b", "B"));
    fs.Reboot();
    seen.insert(absl::StrCat(Contents(fs, "/a"), Contents(fs, "/b")));
  }
  EXPECT_EQ(seen, (std::set<std::string>{"AB", "A(none)", "(none)B",
                                         "(none)(none)"}));
}

TEST(SimStorage, KeepsChangesInOrderWhenAskedTo) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SimStorage fs({.seed = seed, .survival = Survival::kPrefix});
    EXPECT_OK(WriteFile(fs, "/a", "A"));
    EXPECT_OK(WriteFile(fs, "/b", "B"));
    fs.Reboot();
    EXPECT_NE(absl::StrCat(Contents(fs, "/a"), Contents(fs, "/b")), "(none)B");
  }
}

TEST(SimStorage, RenamesAtomically) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SimStorage fs({.seed = seed});
    EXPECT_OK(WriteFile(fs, "/f", "old"));
    EXPECT_OK(WriteFile(fs, "/tmp", "new"));
    EXPECT_OK(fs.SyncDirectory("/"));
    EXPECT_OK(fs.Rename("/tmp", "/f"));
    fs.Reboot();
    seen.insert(absl::StrCat(Contents(fs, "/f"), " ", Contents(fs, "/tmp")));
  }
  EXPECT_EQ(seen, (std::set<std::string>{"old new", "new (none)"}));
}

TEST(SimStorage, RenameWithoutSyncOfTheDataLosesIt) {
  bool lost = false;
  for (uint64_t seed = 0; seed < 100 && !lost; ++seed) {
    SimStorage fs({.seed = seed});
    EXPECT_OK(WriteUnsynced(fs, "/tmp", "new"));
    EXPECT_OK(fs.Rename("/tmp", "/f"));
    EXPECT_OK(fs.SyncDirectory("/"));
    fs.Reboot();
    lost = Contents(fs, "/f") != "new";
  }
  EXPECT_TRUE(lost);
}

TEST(SimStorage, SyncOfOneDirectoryDoesNotSplitARename) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SimStorage fs({.seed = seed});
    EXPECT_OK(fs.MakeDirectory("/a"));
    EXPECT_OK(fs.MakeDirectory("/b"));
    EXPECT_OK(fs.SyncDirectory("/"));
    EXPECT_OK(WriteFile(fs, "/a/f", "x"));
    EXPECT_OK(fs.Rename("/a/f", "/b/f"));
    EXPECT_OK(fs.SyncDirectory("/b"));
    fs.Reboot();
    EXPECT_EQ(Contents(fs, "/b/f"), "x");
    EXPECT_EQ(Contents(fs, "/a/f"), "(none)");
  }
}

TEST(SimStorage, DiesAtTheChosenMutationUntilItReboots) {
  SimStorage fs;
  fs.CrashAfter(1);
  EXPECT_OK(fs.MakeDirectory("/a"));
  EXPECT_THAT(fs.MakeDirectory("/b"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("crashed")));
  EXPECT_TRUE(fs.crashed());
  EXPECT_THAT(fs.Stat("/a"), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(fs.List("/"), StatusIs(absl::StatusCode::kUnavailable));
  fs.Reboot();
  EXPECT_OK(fs.List("/"));
  EXPECT_OK(fs.MakeDirectory("/c"));
  EXPECT_EQ(fs.num_mutations(), 3u);
}

TEST(SimStorage, TearsThePageThatIsBeingWritten) {
  bool torn = false;
  for (uint64_t seed = 0; seed < 100 && !torn; ++seed) {
    SimStorage fs({.seed = seed});
    ASSERT_OK_AND_ASSIGN(const File file,
                         fs.Create("/f", kPage, DirectMode::kOff));
    EXPECT_OK(fs.Sync(file));
    EXPECT_OK(fs.SyncDirectory("/"));
    fs.CrashAfter(0);
    EXPECT_THAT(fs.Write(file, 0, AsBytes(std::string(kPage, 'n'))),
                StatusIs(absl::StatusCode::kUnavailable));
    fs.Reboot();
    const std::string left = Contents(fs, "/f");
    ASSERT_EQ(left.size(), kPage);
    torn = left.front() == 'n' && left.back() == '\0';
  }
  EXPECT_TRUE(torn);
}

TEST(SimStorage, FailsTheChosenOperation) {
  SimStorage fs;
  fs.FailOperation(1, EIO);
  EXPECT_OK(fs.MakeDirectory("/a"));
  EXPECT_THAT(fs.Stat("/a"), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_OK(fs.Stat("/a"));
}

TEST(SimStorage, RunsFull) {
  SimStorage fs({.capacity_bytes = 3 * kPage});
  EXPECT_THAT(fs.Create("/large", 3 * kPage + 1, DirectMode::kOff),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr(absl::StrCat(3 * kPage, " free"))));
  ASSERT_OK_AND_ASSIGN(const File file, fs.Create("/f", 0, DirectMode::kOff));
  EXPECT_OK(fs.Write(file, 0, AsBytes(std::string(3 * kPage, 'x'))));
  EXPECT_THAT(fs.Write(file, 3 * kPage, AsBytes("x")),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_OK(fs.Close(file));
  EXPECT_OK(fs.Remove("/f"));
  EXPECT_OK(WriteFile(fs, "/g", std::string(3 * kPage, 'x')));
}

TEST(SimStorage, RefusesTheSameCallsAsPosix) {
  SimStorage fs;
  EXPECT_OK(WriteFile(fs, "/f", "x"));
  EXPECT_OK(fs.MakeDirectory("/d"));
  EXPECT_OK(WriteFile(fs, "/d/g", "y"));
  EXPECT_THAT(fs.Create("/none/f", 0, DirectMode::kOff),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(fs.RenameExclusive("/f", "/d"),
              StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(fs.Rename("/f", "/d"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(fs.RemoveDirectory("/d"),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(fs.Remove("/d"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(fs.OpenForRead("/d", DirectMode::kOff, true),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_OK(fs.Exchange("/f", "/d/g"));
  EXPECT_EQ(Contents(fs, "/f"), "y");
  ASSERT_OK_AND_ASSIGN(const std::vector<DirectoryEntry> entries, fs.List("/"));
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].name, "d");
  EXPECT_EQ(entries[0].kind, FileKind::kDirectory);
}

TEST(SimStorage, RequiresAlignmentOnDirectFiles) {
  for (const uint64_t alignment : {uint64_t{512}, kMaxDirectAlignment}) {
    SimStorage fs({.alignment = alignment});
    ASSERT_OK_AND_ASSIGN(const File file,
                         fs.Create("/f", alignment, DirectMode::kOn));
    EXPECT_EQ(file.alignment, alignment);
    ASSERT_OK_AND_ASSIGN(const auto queue, fs.NewQueue(1, {}));
    alignas(kMaxDirectAlignment) static uint8_t memory[kMaxDirectAlignment];
    std::vector<IoRequest*> done;
    IoRequest request = {.op = IoRequest::Op::kWrite,
                         .file = file.handle,
                         .data = memory,
                         .length = static_cast<uint32_t>(alignment / 2)};
    ASSERT_OK(queue->Submit(&request));
    ASSERT_OK(queue->Reap(done));
    EXPECT_EQ(request.result, -EINVAL);
    request.length = static_cast<uint32_t>(alignment);
    ASSERT_OK(queue->Submit(&request));
    ASSERT_OK(queue->Reap(done));
    EXPECT_EQ(request.result, static_cast<int64_t>(alignment));
  }
}

TEST(SimStorage, IsDeterministic) {
  const auto run = [] {
    SimStorage fs({.seed = 7, .percent_short = 50});
    for (int i = 0; i < 20; ++i) {
      EXPECT_OK(WriteUnsynced(fs, absl::StrCat("/", i), "x"));
    }
    fs.Reboot();
    std::string left;
    for (int i = 0; i < 20; ++i) left += Contents(fs, absl::StrCat("/", i));
    return left;
  };
  EXPECT_EQ(run(), run());
}

}  // namespace
}  // namespace dcp::testing
