// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/posix_lock.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/io/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class PosixLock : public ::testing::Test {
 protected:
  TempDir dir_;
  std::unique_ptr<FileSystem> fs_ = NewPosixFileSystem();
};

TEST_F(PosixLock, LocksForOneHandleAtATime) {
  const std::string path = dir_.Join(".x.lock");
  ASSERT_OK_AND_ASSIGN(const FileLock first, fs_->Lock(path, "writer a\n"));
  EXPECT_GE(first.file.handle, 0);
  EXPECT_EQ(first.text, "");
  ASSERT_OK_AND_ASSIGN(const FileLock second, fs_->Lock(path, "writer b\n"));
  EXPECT_LT(second.file.handle, 0);
  EXPECT_THAT(second.text,
              AllOf(StartsWith("tessera lock\nhost "),
                    HasSubstr(absl::StrCat("\npid ", getpid())),
                    HasSubstr("\nsince 20"), HasSubstr("\nwriter a\n")));
  EXPECT_EQ(first.file.size, second.text.size());
  EXPECT_OK(fs_->Unlock(path, first.file));
  EXPECT_THAT(fs_->Stat(path), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK_AND_ASSIGN(const FileLock third, fs_->Lock(path, ""));
  // The file was removed, and another one has the name now.
  EXPECT_OK(fs_->Remove(path));
  ASSERT_OK_AND_ASSIGN(const FileLock fourth, fs_->Lock(path, ""));
  EXPECT_GE(fourth.file.handle, 0);
  EXPECT_OK(fs_->Unlock(path, third.file));
  EXPECT_OK(fs_->Stat(path));
  EXPECT_OK(fs_->Unlock(path, fourth.file));
  EXPECT_THAT(fs_->Lock(dir_.Join("no/.x.lock"), ""),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(PosixLock, ADeadProcessHoldsNoLock) {
  const std::string path = dir_.Join(".x.lock");
  const pid_t child = fork();
  if (child == 0) {
    _exit(fs_->Lock(path, "writer a\n").ok() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_OK_AND_ASSIGN(const FileLock lock, fs_->Lock(path, "writer b\n"));
  EXPECT_GE(lock.file.handle, 0);
  EXPECT_THAT(lock.text, HasSubstr(absl::StrCat("\npid ", child, "\n")));
  EXPECT_OK(fs_->Unlock(path, lock.file));
}

TEST_F(PosixLock, RefusesFilesThatAreNotLockFiles) {
  const std::string notes = dir_.WriteFile(".notes.lock", "my notes");
  const std::string link = dir_.Join(".link.lock");
  ASSERT_EQ(symlink(notes.c_str(), link.c_str()), 0);
  const std::string pipe = dir_.Join(".pipe.lock");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {notes, pipe}) {
    EXPECT_THAT(fs_->Lock(path, ""),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr(path), HasSubstr("move it away"))));
  }
  EXPECT_FALSE(fs_->Lock(link, "").ok());
  EXPECT_THAT(ReadFile(*fs_, notes, 100, true), IsOkAndHolds("my notes"));
}

// Holders come and go: each one with the lock is alone.
TEST_F(PosixLock, NeverRemovesAnotherHoldersLockFile) {
  const std::string path = dir_.Join(".x.lock");
  std::atomic<int> num_holders = 0;
  std::atomic<int> num_taken = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (num_taken < 500) {
        const absl::StatusOr<FileLock> lock = fs_->Lock(path, "");
        ASSERT_OK(lock);
        if (lock->file.handle < 0) continue;
        EXPECT_EQ(num_holders.fetch_add(1), 0);
        ++num_taken;
        num_holders.fetch_sub(1);
        EXPECT_OK(fs_->Unlock(path, lock->file));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(fs_->Stat(path), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace dcp
