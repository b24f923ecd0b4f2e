// SPDX-License-Identifier: Apache-2.0

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/page_bytes.h"
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

class PosixFileSystemTest : public ::testing::Test {
 protected:
  absl::StatusOr<File> OpenForRead(const std::string& path,
                                   DirectMode direct = DirectMode::kOff,
                                   bool follow_symlinks = true) {
    return fs_->OpenForRead(path, direct, follow_symlinks);
  }

  std::string ReadSome(const File& file, uint64_t offset, uint64_t length) {
    std::string bytes(length, '\0');
    EXPECT_OK(fs_->Read(
        file, offset,
        MutableByteSpan(reinterpret_cast<uint8_t*>(bytes.data()), length)));
    return bytes;
  }

  TempDir dir_;
  std::unique_ptr<FileSystem> fs_ = NewPosixFileSystem();
};

TEST_F(PosixFileSystemTest, OpensRegularFilesOnly) {
  const std::string fifo = dir_.Join("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(OpenForRead(fifo), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("not a regular file")));
  // Bazel's folders have longer names than a socket may have.
  char folder[] = "/tmp/posix_file_system_test_XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string name = absl::StrCat(folder, "/socket");
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  ASSERT_LT(name.size(), sizeof(address.sun_path));
  name.copy(address.sun_path, name.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            0);
  EXPECT_THAT(OpenForRead(name), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("not a regular file")));
  close(fd);
  std::filesystem::remove_all(folder);
  EXPECT_THAT(OpenForRead(dir_.path()),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(OpenForRead("/dev/null"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(OpenForRead(dir_.Join("none")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
}

TEST_F(PosixFileSystemTest, FollowsALinkOnlyOnRequest) {
  const std::string target = dir_.WriteFile("target", "x");
  const std::string link = dir_.Join("link");
  ASSERT_EQ(symlink(target.c_str(), link.c_str()), 0);
  EXPECT_THAT(OpenForRead(link, DirectMode::kOff, false),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(link), HasSubstr("symbolic link"))));
  EXPECT_THAT(ReadFile(*fs_, link, 10, true), IsOkAndHolds("x"));
  ASSERT_OK_AND_ASSIGN(const FileInfo info, fs_->Stat(link));
  EXPECT_EQ(info.kind, FileKind::kSymlink);
}

TEST_F(PosixFileSystemTest, ReadsAndWritesDirectFilesAtAnyAlignment) {
  ASSERT_OK_AND_ASSIGN(const File file,
                       fs_->Create(dir_.Join("f"), 0, DirectMode::kOn));
  EXPECT_TRUE(file.direct());
  EXPECT_OK(fs_->Write(file, 5, AsBytes("hello")));
  EXPECT_OK(fs_->Sync(file));
  EXPECT_EQ(ReadSome(file, 3, 6), absl::string_view("\0\0hell", 6));
  uint8_t byte;
  EXPECT_THAT(
      fs_->Read(file, 10, MutableByteSpan(&byte, 1)),
      StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("file ends at 10")));
  EXPECT_OK(fs_->Truncate(file, 7));
  ASSERT_OK_AND_ASSIGN(const FileInfo info, fs_->Stat(dir_.Join("f")));
  EXPECT_EQ(info.size, 7u);
  EXPECT_OK(fs_->Close(file));
}

TEST_F(PosixFileSystemTest, StatDistinguishesAFileFromItsSuccessor) {
  const std::string path = dir_.WriteFile("a", "12345");
  ASSERT_OK_AND_ASSIGN(const FileInfo before, fs_->Stat(path));
  EXPECT_THAT(fs_->Stat(path), IsOkAndHolds(before));
  ASSERT_OK(fs_->Rename(dir_.WriteFile("b", "12345"), path));
  ASSERT_OK_AND_ASSIGN(const FileInfo after, fs_->Stat(path));
  EXPECT_NE(after.inode, before.inode);
  EXPECT_EQ(after.size, before.size);
  EXPECT_GE(after.modified_ns, before.modified_ns);
}

TEST_F(PosixFileSystemTest, ChoosesDirectForLargeFilesThatAreNotCached) {
  ASSERT_OK_AND_ASSIGN(
      const File large,
      fs_->Create(dir_.Join("large"), kMinDirectFileBytes, DirectMode::kAuto));
  ASSERT_OK_AND_ASSIGN(const File small,
                       fs_->Create(dir_.Join("small"), 10, DirectMode::kAuto));
  EXPECT_TRUE(large.direct());
  EXPECT_FALSE(small.direct());
  EXPECT_OK(fs_->Close(large));
  EXPECT_OK(fs_->Close(small));

  // The samples of the cache begin inside pages of 64 KiB.
  constexpr uint64_t kSize = kMinDirectFileBytes + 8 * uint64_t{4096};
  const std::string cached = dir_.WriteFile("cached", std::string(kSize, 'x'));
  ASSERT_OK_AND_ASSIGN(const File from_cache,
                       OpenForRead(cached, DirectMode::kAuto));
  EXPECT_FALSE(from_cache.direct());
  EXPECT_EQ(from_cache.size, kSize);
  EXPECT_OK(fs_->Sync(from_cache));
  posix_fadvise(from_cache.handle, 0, 0, POSIX_FADV_DONTNEED);
  // Looking must not bring pages into the cache.
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(const File uncached,
                         OpenForRead(cached, DirectMode::kAuto));
    EXPECT_TRUE(uncached.direct());
    EXPECT_OK(fs_->Close(uncached));
  }
  EXPECT_OK(fs_->Close(from_cache));
}

TEST_F(PosixFileSystemTest, CreatesNewFilesOnlyWithTheirSize) {
  const std::string path = dir_.Join("f");
  ASSERT_OK_AND_ASSIGN(const File file,
                       fs_->Create(path, 12345, DirectMode::kOff));
  EXPECT_OK(fs_->Close(file));
  ASSERT_OK_AND_ASSIGN(const FileInfo info, fs_->Stat(path));
  EXPECT_EQ(info.size, 12345u);
  EXPECT_THAT(fs_->Create(path, 0, DirectMode::kOff),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(path)));
}

TEST_F(PosixFileSystemTest, SharesAFileAmongItsWriters) {
  const std::string path = dir_.Join("f");
  ASSERT_OK_AND_ASSIGN(const File first,
                       fs_->OpenShared(path, 6, DirectMode::kAuto));
  EXPECT_OK(fs_->Write(first, 0, AsBytes("abc")));
  ASSERT_OK_AND_ASSIGN(const File second,
                       fs_->OpenShared(path, 6, DirectMode::kAuto));
  EXPECT_FALSE(second.direct());
  EXPECT_OK(fs_->Write(second, 3, AsBytes("def")));
  EXPECT_EQ(ReadSome(first, 0, 6), "abcdef");
  EXPECT_OK(fs_->Close(first));
  EXPECT_OK(fs_->Close(second));
  ASSERT_OK(fs_->Rename(dir_.WriteFile("g", "longer than that"), path));
  ASSERT_OK_AND_ASSIGN(const File cut,
                       fs_->OpenShared(path, 6, DirectMode::kAuto));
  EXPECT_EQ(ReadSome(cut, 0, 6), "longer");
  EXPECT_OK(fs_->Close(cut));
  ASSERT_OK_AND_ASSIGN(const FileInfo info, fs_->Stat(path));
  EXPECT_EQ(info.size, 6u);
  EXPECT_THAT(fs_->OpenShared(dir_.Join("none/f"), 6, DirectMode::kAuto),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(PosixFileSystemTest, SharesADirectFileAtAnyAlignment) {
  const std::string path = dir_.Join("f");
  constexpr uint64_t kSize = 3 * kDirectAlignment;
  ASSERT_OK_AND_ASSIGN(const File first,
                       fs_->OpenShared(path, kSize, DirectMode::kOn));
  EXPECT_TRUE(first.direct());
  EXPECT_EQ(first.alignment % PageBytes(), 0u);
  ASSERT_OK_AND_ASSIGN(const File second,
                       fs_->OpenShared(path, kSize, DirectMode::kOn));
  EXPECT_OK(fs_->Write(first, 5, AsBytes("abc")));
  EXPECT_OK(fs_->Write(second, 8, AsBytes("def")));
  EXPECT_EQ(ReadSome(first, 5, 6), "abcdef");
  EXPECT_OK(fs_->Close(first));
  EXPECT_OK(fs_->Close(second));
}

TEST_F(PosixFileSystemTest, NamesTheFreeBytesOfAFullDisk) {
  struct statvfs disk;
  ASSERT_EQ(statvfs(dir_.path().c_str(), &disk), 0);
  // More than the disk has, but less than the largest file.
  const uint64_t size =
      std::min<uint64_t>(disk.f_blocks * disk.f_frsize * 2, uint64_t{15} << 40);
  EXPECT_THAT(
      fs_->Create(dir_.Join("f"), size, DirectMode::kAuto),
      StatusIs(absl::StatusCode::kResourceExhausted,
               AllOf(HasSubstr(absl::StrCat(size)), HasSubstr("free"))));
  EXPECT_THAT(fs_->Stat(dir_.Join("f")), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(PosixFileSystemTest, RenamesExchangesAndRemoves) {
  const std::string a = dir_.WriteFile("a", "A");
  const std::string b = dir_.WriteFile("b", "B");
  const std::string c = dir_.Join("c");
  EXPECT_THAT(fs_->RenameExclusive(a, b),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(b)));
  EXPECT_OK(fs_->RenameExclusive(a, c));
  EXPECT_OK(fs_->Exchange(b, c));
  EXPECT_THAT(ReadFile(*fs_, c, 1, true), IsOkAndHolds("B"));
  EXPECT_OK(fs_->Rename(c, b));  // replaces
  EXPECT_THAT(ReadFile(*fs_, b, 1, true), IsOkAndHolds("B"));
  EXPECT_THAT(fs_->Exchange(b, c), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_OK(fs_->Remove(b));
  EXPECT_THAT(fs_->Remove(b), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(PosixFileSystemTest, MakesListsAndRemovesDirectories) {
  const std::string sub = dir_.Join("sub");
  EXPECT_OK(fs_->MakeDirectory(sub));
  EXPECT_THAT(fs_->MakeDirectory(sub),
              StatusIs(absl::StatusCode::kAlreadyExists));
  dir_.WriteFile("sub/z", "");
  dir_.WriteFile("sub/a", "");
  EXPECT_OK(fs_->MakeDirectory(JoinPath(sub, "d")));
  EXPECT_OK(fs_->SyncDirectory(sub));
  ASSERT_OK_AND_ASSIGN(const std::vector<DirectoryEntry> entries,
                       fs_->List(sub));
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].name, "a");
  EXPECT_EQ(entries[1].name, "d");
  EXPECT_EQ(entries[1].kind, FileKind::kDirectory);
  EXPECT_EQ(entries[2].name, "z");
  EXPECT_EQ(entries[2].kind, FileKind::kFile);
  EXPECT_THAT(fs_->RemoveDirectory(sub),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_OK(fs_->RemoveDirectory(JoinPath(sub, "d")));
  EXPECT_THAT(fs_->List(JoinPath(sub, "d")),
              StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace dcp
