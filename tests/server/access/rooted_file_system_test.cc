// SPDX-License-Identifier: Apache-2.0

#include "server/access/rooted_file_system.h"

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/io/object/object_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sim_object_server.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using ::dcp::testing::kDenied;

class RootedFileSystemTest : public ::testing::Test {
 protected:
  RootedFileSystemTest() {
    base_ = std::filesystem::canonical(dir_.path()).string();
    dir_.WriteFile("data/a", "inside");
    dir_.WriteFile("read/a", "inside");
    dir_.WriteFile("secret/key", "outside");
    for (const auto& [to, name] :
         std::vector<std::pair<std::string, std::string>>{
             {Path("secret"), "data/out"},
             {Path("secret/key"), "data/key"},
             {"a", "data/link"}}) {
      EXPECT_EQ(symlink(to.c_str(), Path(name).c_str()), 0);
    }
    access_ = std::make_unique<Access>(
        *Access::Load({{.path = Path("data"), .writable = true},
                       {.path = Path("read"), .writable = false}},
                      ""));
    fs_ = std::make_unique<RootedFileSystem>(*disk_,
                                             *access_->FindClient("anonymous"));
  }

  std::string Path(absl::string_view name) const {
    return absl::StrCat(base_, "/", name);
  }

  absl::StatusOr<std::string> Read(absl::string_view name, bool follow) {
    return ReadFile(*fs_, Path(name), 100, follow);
  }

  const TempDir dir_;
  std::string base_;
  const std::unique_ptr<FileSystem> disk_ = NewPosixFileSystem();
  std::unique_ptr<Access> access_;
  std::unique_ptr<RootedFileSystem> fs_;
};

TEST_F(RootedFileSystemTest, ReadsOnlyInsideRoots) {
  EXPECT_THAT(Read("data/a", false), IsOkAndHolds("inside"));
  EXPECT_THAT(Read("read/a", true), IsOkAndHolds("inside"));
  EXPECT_THAT(Read("data/link", true), IsOkAndHolds("inside"));
  EXPECT_FALSE(Read("data/link", false).ok());
  for (const char* name : {"data/key", "data/out/key", "secret/key"}) {
    EXPECT_THAT(Read(name, true), StatusIs(kDenied)) << name;
    EXPECT_FALSE(Read(name, false).ok()) << name;
  }
  EXPECT_THAT(Read("data/../secret/key", true),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Read("data/none", true), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(RootedFileSystemTest, StatDoesNotFollowLinks) {
  EXPECT_EQ(fs_->Stat(Path("data/key"))->kind, FileKind::kSymlink);
  EXPECT_EQ(fs_->Stat(Path("data"))->kind, FileKind::kDirectory);
  EXPECT_THAT(fs_->Stat(Path("data/out/key")), StatusIs(kDenied));
  EXPECT_EQ(fs_->List(Path("data"))->size(), 4u);
  EXPECT_THAT(fs_->List(Path("data/out")), StatusIs(kDenied));
  EXPECT_THAT(fs_->List(base_), StatusIs(kDenied));
}

TEST_F(RootedFileSystemTest, WritesOnlyInsideRoots) {
  EXPECT_OK(WriteFile(*fs_, Path("data/new"), "x"));
  EXPECT_OK(fs_->MakeDirectory(Path("data/sub")));
  EXPECT_OK(fs_->Rename(Path("data/new"), Path("data/sub/new")));
  EXPECT_OK(fs_->SyncDirectory(Path("data")));
  EXPECT_OK(fs_->RenameExclusive(Path("data/sub/new"), Path("data/b")));
  EXPECT_OK(fs_->Exchange(Path("data/a"), Path("data/b")));
  EXPECT_OK(fs_->RemoveDirectory(Path("data/sub")));
  for (const char* name :
       {"data/out/x", "read/x", "secret/x", "x", "data", "secret/key"}) {
    const std::string path = Path(name);
    for (const absl::Status& status :
         {fs_->Create(path, 1, DirectMode::kOff).status(),
          fs_->MakeDirectory(path), fs_->Remove(path),
          fs_->RemoveDirectory(path), fs_->Lock(path, "").status(),
          fs_->Rename(Path("data/a"), path), fs_->Rename(path, Path("data/a")),
          fs_->RenameExclusive(path, Path("data/c")),
          fs_->RenameExclusive(Path("data/a"), path),
          fs_->Exchange(path, Path("data/a")),
          fs_->Exchange(Path("data/a"), path)}) {
      EXPECT_THAT(status, StatusIs(kDenied)) << name;
    }
  }
  EXPECT_THAT(fs_->SyncDirectory(base_), StatusIs(kDenied));
}

// A client that has lost the right can still remove the files that a job wrote.
TEST_F(RootedFileSystemTest, AJobHasTheClientsCurrentRights) {
  const std::string hash(64, '0');
  const std::string writes =
      absl::StrCat("a ", hash, " write=", Path("data"), "\n");
  const std::string tokens = dir_.WriteFile("tokens", writes);
  ASSERT_OK_AND_ASSIGN(
      Access access,
      Access::Load({{.path = Path("data"), .writable = true}}, tokens));
  const Client* const client = access.FindClient("a");
  RootedFileSystem fs(*disk_, access, *client);
  ASSERT_OK_AND_ASSIGN(const File file,
                       fs.Create(Path("data/new"), 0, DirectMode::kAuto));
  EXPECT_OK(fs.Close(file));
  // Another token with the same rights.
  dir_.WriteFile("tokens", absl::StrCat("a ", std::string(64, '1'),
                                        writes.substr(2 + hash.size())));
  ASSERT_OK(access.Reload());
  EXPECT_TRUE(client->is_revoked());
  EXPECT_OK(fs.Rename(Path("data/new"), Path("data/newer")));
  for (const char* line : {"b ", "a "}) {
    dir_.WriteFile("tokens",
                   absl::StrCat(line, hash, " read=", Path("data"), "\n"));
    ASSERT_OK(access.Reload());
    EXPECT_THAT(fs.Create(Path("data/x"), 0, DirectMode::kAuto),
                StatusIs(kDenied));
    EXPECT_THAT(fs.Rename(Path("data/newer"), Path("data/newest")),
                StatusIs(kDenied));
  }
  EXPECT_OK(fs.Remove(Path("data/newer")));
}

TEST(RootedObjects, AreReadAndWrittenOnlyBelowTheRoot) {
  testing::SimObjectServer server;
  server.PutBytes("runs/a", "inside");
  server.PutBytes("read/a", "inside");
  server.PutBytes("secret", "outside");
  ObjectFileSystem objects(server.Opener());
  const Access access =
      *Access::Load({{.path = "s3://bucket/runs", .writable = true},
                     {.path = "s3://bucket/read", .writable = false}},
                    "");
  RootedFileSystem fs(objects, *access.FindClient("anonymous"));
  const auto read = [&](absl::string_view path) {
    return ReadFile(fs, path, 100, /*follow_symlinks=*/true);
  };
  EXPECT_FALSE(fs.TraitsAt("s3://bucket/runs").has_rename);
  EXPECT_THAT(read("s3://bucket/runs/a"), IsOkAndHolds("inside"));
  EXPECT_THAT(read("s3://bucket/read/a"), IsOkAndHolds("inside"));
  EXPECT_THAT(read("s3://bucket/secret"), StatusIs(kDenied));
  EXPECT_THAT(fs.List("s3://bucket"), StatusIs(kDenied));
  EXPECT_THAT(fs.ListHidden("s3://bucket"), StatusIs(kDenied));
  EXPECT_EQ(fs.List("s3://bucket/runs")->size(), 1u);

  const std::string own = "s3://bucket/runs/x";
  const InParts parts{.size = 4, .part_bytes = 4, .hidden = true};
  const auto write_hidden = [&] {
    ASSERT_OK_AND_ASSIGN(const File file, fs.CreateInParts(own, parts));
    EXPECT_OK(fs.Write(file, 0, AsBytes(absl::string_view("text"))));
    EXPECT_OK(fs.Sync(file));
    EXPECT_OK(fs.Close(file));
  };
  write_hidden();
  EXPECT_OK(fs.Discard(own));
  write_hidden();
  ASSERT_OK_AND_ASSIGN(const HiddenFile released, fs.Release(own));
  EXPECT_EQ(fs.ListHidden("s3://bucket/runs")->size(), 1u);
  EXPECT_OK(fs.Adopt(released, 4));
  EXPECT_OK(fs.Publish(own, true));
  EXPECT_THAT(read(own), IsOkAndHolds("text"));
  EXPECT_OK(fs.Replace(own, "else", *fs.Stat(own)));
  EXPECT_OK(fs.RemoveHidden({.path = own, .id = released.id}));
  EXPECT_OK(fs.Remove(own));

  const std::vector<std::string> before = server.Keys();
  for (const std::string path :
       {"s3://bucket/secret", "s3://bucket/read/x", "s3://bucket/runs",
        "s3://bucket/x", "s3://other/runs/x"}) {
    for (const absl::Status& status :
         {fs.CreateInParts(path, parts).status(), fs.Publish(path, true),
          fs.Discard(path), fs.Release(path).status(),
          fs.Adopt({.path = path, .id = "1"}, 4),
          fs.Replace(path, "x", std::nullopt),
          fs.RemoveHidden({.path = path, .id = "1"}), fs.Remove(path),
          fs.Create(path, 1, DirectMode::kOff).status()}) {
      EXPECT_THAT(status, StatusIs(kDenied)) << path;
    }
  }
  EXPECT_EQ(server.Keys(), before);
}

// A name is alternately the client's file and a link. An owner who replaces a
// checkpoint does this, and so does an attacker.
TEST_F(RootedFileSystemTest, DoesNotFollowLinksMadeMeanwhile) {
  constexpr int kRounds = 2000;
  for (const bool is_file : {true, false}) {
    const std::string own = Path("data/swapped");
    const std::string target = Path(is_file ? "secret/key" : "secret");
    const std::string link = Path("data/link-out");
    ASSERT_EQ(symlink(target.c_str(), link.c_str()), 0);
    const std::string path = is_file ? own : own + "/key";
    if (is_file) {
      dir_.WriteFile("data/swapped", "inside");
    } else {
      dir_.WriteFile("data/swapped/key", "inside");
    }
    std::jthread renamer([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        EXPECT_OK(disk_->Exchange(own, link));
      }
    });
    int num_read = 0;
    for (int i = 0; i < kRounds; ++i) {
      const absl::StatusOr<std::string> text =
          ReadFile(*fs_, path, 100, /*follow_symlinks=*/true);
      if (text.ok()) {
        ASSERT_EQ(*text, "inside");
        ++num_read;
      }
      const absl::StatusOr<FileInfo> info = fs_->StatTarget(path);
      if (info.ok()) {
        ASSERT_EQ(info->size, 6u);
      }
      // Nothing outside is made, moved or removed.
      if (is_file) continue;
      const std::string made = own + "/made";
      WriteFile(*fs_, made, "x").IgnoreError();
      fs_->Rename(own + "/made", own + "/moved").IgnoreError();
      fs_->Remove(own + "/moved").IgnoreError();
      fs_->MakeDirectory(own + "/sub").IgnoreError();
      fs_->RemoveDirectory(own + "/sub").IgnoreError();
    }
    renamer.request_stop();
    renamer.join();
    EXPECT_GT(num_read, 0);
    EXPECT_THAT(ReadFile(*disk_, Path("secret/key"), 100, false),
                IsOkAndHolds("outside"));
    EXPECT_EQ(disk_->List(Path("secret"))->size(), 1u);
    // Neither call follows a link.
    std::filesystem::remove_all(link);
    std::filesystem::remove_all(own);
  }
}

// A relative link, an absolute one, and one from root to root.
TEST_F(RootedFileSystemTest, FollowsLinksWithinRoots) {
  for (const auto& [to, name] :
       std::vector<std::pair<std::string, std::string>>{
           {"../data/a", "data/relative"},
           {Path("data/a"), "data/absolute"},
           {Path("read"), "data/other"}}) {
    ASSERT_EQ(symlink(to.c_str(), Path(name).c_str()), 0);
  }
  EXPECT_THAT(Read("data/relative", true), IsOkAndHolds("inside"));
  EXPECT_THAT(Read("data/absolute", true), IsOkAndHolds("inside"));
  EXPECT_THAT(Read("data/other/a", true), IsOkAndHolds("inside"));
  EXPECT_THAT(Read("data/other/a", false), IsOkAndHolds("inside"));
  // The other root's rights count.
  EXPECT_THAT(fs_->Remove(Path("data/other/a")), StatusIs(kDenied));
}

TEST_F(RootedFileSystemTest, ErrorsHideTheTargetOfARootLink) {
  ASSERT_EQ(symlink("data", Path("shortcut").c_str()), 0);
  const absl::StatusOr<Access> access =
      Access::Load({{.path = Path("shortcut"), .writable = true}}, "");
  ASSERT_OK(access);
  const Client& client = *access->FindClient("anonymous");
  RootedFileSystem fs(*disk_, client);
  for (const char* name :
       {"shortcut/none", "shortcut/none/deeper", "shortcut/a/below",
        "data/none", "data/none/deeper"}) {
    const absl::StatusOr<std::string> path = client.CheckRead(Path(name));
    ASSERT_OK(path);
    const absl::Status read = ReadFile(fs, *path, 100, true).status();
    EXPECT_THAT(
        std::string(read.message()),
        AllOf(HasSubstr(Path("shortcut")), Not(HasSubstr(Path("data")))))
        << name;
  }
}

// A user who can write next to a client's root can replace it with a link.
TEST_F(RootedFileSystemTest, DoesNotFollowARootReplacedByALink) {
  dir_.WriteFile("data/mine/a", "inside");
  const std::string mine = Path("data/mine");
  RootedFileSystem fs(
      *disk_,
      Client("me", {{.path = mine, .writable = true, .real_path = mine}}));
  EXPECT_THAT(ReadFile(fs, mine + "/a", 100, true), IsOkAndHolds("inside"));
  std::filesystem::rename(mine, Path("data/moved"));
  ASSERT_EQ(symlink(Path("secret").c_str(), mine.c_str()), 0);
  EXPECT_THAT(ReadFile(fs, mine + "/key", 100, true), StatusIs(kDenied));
  EXPECT_THAT(fs.List(mine), StatusIs(kDenied));
  EXPECT_THAT(WriteFile(fs, mine + "/x", "x"), StatusIs(kDenied));
}

TEST_F(RootedFileSystemTest, ErrorsNameTheRequestedPath) {
  for (const absl::Status& status :
       {Read("data/none", true).status(), fs_->Remove(Path("data/none")),
        fs_->MakeDirectory(Path("data/a")), fs_->List(Path("data/a")).status(),
        fs_->Rename(Path("data/none"), Path("data/x"))}) {
    EXPECT_THAT(status.message(), HasSubstr(Path("data/")));
    EXPECT_THAT(status.message(), Not(HasSubstr("/proc")));
  }
}

TEST_F(RootedFileSystemTest, RemovesLinksThatLeadOut) {
  EXPECT_FALSE(WriteFile(*fs_, Path("data/key"), "x").ok());
  EXPECT_OK(fs_->Remove(Path("data/key")));
  EXPECT_OK(WriteFile(*fs_, Path("data/other"), "x"));
  EXPECT_OK(fs_->Rename(Path("data/other"), Path("data/out")));
  EXPECT_THAT(ReadFile(*disk_, Path("secret/key"), 100, false),
              IsOkAndHolds("outside"));
}

}  // namespace
}  // namespace dcp::server
