#include "server/checkpoint_cache.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "dcp/base/error_place.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/rpc_status.h"
#include "tests/server/hooked_file_system.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::CopyGolden;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;
using ::testing::Not;

using Result = absl::StatusOr<std::shared_ptr<SharedCheckpoint>>;

class CheckpointCacheTest : public ::testing::Test {
 protected:
  CheckpointCacheTest()
      : fs_(NewPosixFileSystem()),
        root_(std::filesystem::canonical(dir_.path()).string()),
        client_("me", {{.path = root_, .writable = false, .real_path = root_}}),
        access_(*Access::Load({{.path = root_}}, "")),
        threads_(access_, 2, 1000) {}

  CheckpointCache* NewCache(CheckpointCacheLimits limits = {}) {
    return caches_
        .emplace_back(std::make_unique<CheckpointCache>(*fs_, threads_, limits))
        .get();
  }

  Result Open(CheckpointCache& cache, const std::string& path,
              int64_t rank = -1) {
    return OpenAs(client_, cache, path, rank);
  }

  Result OpenAs(const Client& client, CheckpointCache& cache,
                const std::string& path, int64_t rank = -1) {
    Result result = absl::UnknownError("not called");
    absl::Notification opened;
    cache.Open(client, {.path = path, .open = {.rank = rank}},
               [&](Result opened_now) {
                 result = std::move(opened_now);
                 opened.Notify();
               });
    opened.WaitForNotification();
    return result;
  }

  static absl::Status Locate(SharedCheckpoint& shared,
                             std::vector<uint32_t> entries) {
    absl::Status status;
    absl::Notification located;
    shared.Locate(std::move(entries), [&](absl::Status result) {
      status = std::move(result);
      located.Notify();
    });
    located.WaitForNotification();
    return status;
  }

  // A safetensors file by another name, and an index that names it.
  std::string IndexOf(const std::string& name) {
    const std::string golden = Golden("torch-2.11/hugging_face");
    const std::string directory = root_ + "/" + name;
    std::filesystem::create_directories(directory);
    std::filesystem::copy_file(golden + "/model-00001-of-00002.safetensors",
                               directory + "/w.bin");
    const auto tensor = Checkpoint::Open(
        *fs_, golden + "/model-00001-of-00002.safetensors", {});
    EXPECT_OK(tensor);
    std::vector<std::string> lines;
    for (const CheckpointEntry& entry : (*tensor)->entries()) {
      lines.push_back(absl::StrCat("\"", entry.fqn, "\": \"w.bin\""));
    }
    dir_.WriteFile(
        name + "/model.safetensors.index.json",
        absl::StrCat("{\"weight_map\": {", absl::StrJoin(lines, ", "), "}}"));
    // What makes it one for whoever looks at the names.
    dir_.WriteFile(name + "/x.safetensors", "");
    return directory;
  }

  std::string Golden(const std::string& name) {
    return std::filesystem::canonical(CopyGolden(dir_, name)).string();
  }

  const TempDir dir_;
  const std::unique_ptr<FileSystem> fs_;
  const std::string root_;
  const Client client_;
  std::vector<std::unique_ptr<CheckpointCache>> caches_;
  const Access access_;
  RootThreads threads_;  // last: its tasks use the caches
};

TEST_F(CheckpointCacheTest, GivesTheSameUntilItIsReplaced) {
  for (const char* name : {"torch-2.11/sharded", "torch-2.11/archive.pt",
                           "torch-2.11/hugging_face"}) {
    SCOPED_TRACE(name);
    CheckpointCache* const cache = NewCache();
    const std::string path = Golden(name);
    ASSERT_OK_AND_ASSIGN(const auto first, Open(*cache, path));
    ASSERT_OK_AND_ASSIGN(const auto again, Open(*cache, path));
    EXPECT_EQ(first, again);
    // Another file with the same bytes.
    const std::string index = !std::filesystem::is_directory(path) ? path
                              : std::filesystem::exists(path + "/.metadata")
                                  ? path + "/.metadata"
                                  : path + "/model.safetensors.index.json";
    std::filesystem::copy_file(index, index + ".new");
    std::filesystem::rename(index + ".new", index);
    ASSERT_OK_AND_ASSIGN(const auto replaced, Open(*cache, path));
    EXPECT_NE(replaced, first);
    EXPECT_NE(replaced->etag(), first->etag());
    EXPECT_EQ(cache->num_open(), 1u);
  }
}

TEST_F(CheckpointCacheTest, EtagsOfRanksDiffer) {
  CheckpointCache* const cache = NewCache();
  const std::string path = Golden("torch-2.11/sharded");
  ASSERT_OK_AND_ASSIGN(const auto all, Open(*cache, path));
  ASSERT_OK_AND_ASSIGN(const auto one, Open(*cache, path, 1));
  EXPECT_NE(all, one);
  EXPECT_NE(all->etag(), one->etag());
}

TEST_F(CheckpointCacheTest, CallsThatComeTogetherOpenOnce) {
  CheckpointCache* const cache = NewCache();
  const std::string path = Golden("torch-2.11/train");
  constexpr size_t kCalls = 50;
  std::vector<Result> results(kCalls, absl::UnknownError(""));
  std::vector<absl::Notification> opened(kCalls);
  for (size_t i = 0; i < kCalls; ++i) {
    cache->Open(client_, {.path = path, .open = {}}, [&, i](Result result) {
      results[i] = std::move(result);
      opened[i].Notify();
    });
  }
  for (const auto& notification : opened) notification.WaitForNotification();
  for (const Result& result : results) {
    ASSERT_OK(result);
    EXPECT_EQ(*result, *results[0]);
  }
}

TEST_F(CheckpointCacheTest, TheOneThatWasUsedLeastRecentlyGoes) {
  CheckpointCache* const cache = NewCache({.num_checkpoints = 2});
  const std::string a = Golden("torch-2.11/sharded");
  const std::string b = Golden("torch-2.11/train");
  const std::string c = Golden("torch-2.11/archive.pt");
  std::weak_ptr<SharedCheckpoint> first = *Open(*cache, a);
  std::weak_ptr<SharedCheckpoint> second = *Open(*cache, b);
  ASSERT_OK(Open(*cache, a));
  ASSERT_OK(Open(*cache, c));
  EXPECT_EQ(cache->num_open(), 2u);
  EXPECT_FALSE(first.expired());
  EXPECT_TRUE(second.expired());
}

TEST_F(CheckpointCacheTest, IndicesInUseAreBounded) {
  CheckpointCache* const cache = NewCache({.index_bytes = 1});
  const std::string a = Golden("torch-2.11/sharded");
  const std::string b = Golden("torch-2.11/train");
  {
    // Alone it may be larger.
    ASSERT_OK_AND_ASSIGN(const auto held, Open(*cache, a));
    EXPECT_THAT(Open(*cache, b), StatusIs(absl::StatusCode::kResourceExhausted,
                                          HasSubstr("indices")));
  }
  EXPECT_OK(Open(*cache, b));
  EXPECT_OK(Open(*cache, a));
}

TEST_F(CheckpointCacheTest, ErrorsCarryThePath) {
  CheckpointCache* const cache = NewCache();
  const std::string missing = root_ + "/missing";
  const Result result = Open(*cache, missing);
  EXPECT_THAT(result, StatusIs(absl::StatusCode::kNotFound, Not("")));
  EXPECT_EQ(PlaceOf(result.status()).path, missing);
  EXPECT_THAT(Open(*cache, "/etc"),
              StatusIs(absl::StatusCode::kPermissionDenied, Not("")));
  EXPECT_THAT(Open(*cache, root_), StatusIs(absl::StatusCode::kNotFound,
                                            HasSubstr("no checkpoint")));
}

// A path inside the root whose files lie elsewhere.
TEST_F(CheckpointCacheTest, LinksThatLeadOutAreRefused) {
  const TempDir outside;
  const std::string secret = CopyGolden(outside, "torch-2.11/hugging_face") +
                             "/model-00001-of-00002.safetensors";
  CheckpointCache* const cache = NewCache();
  const std::string path = Golden("torch-2.11/hugging_face");
  ASSERT_OK(Open(*cache, path));
  const std::string file = path + "/model-00001-of-00002.safetensors";
  ASSERT_EQ(unlink(file.c_str()), 0);
  ASSERT_EQ(symlink(secret.c_str(), file.c_str()), 0);
  EXPECT_THAT(Open(*cache, path),
              StatusIs(absl::StatusCode::kPermissionDenied, Not("")));
  // A link that stays inside is followed, as of a cache of Hugging Face's.
  std::filesystem::copy_file(secret, root_ + "/blob");
  ASSERT_EQ(unlink(file.c_str()), 0);
  ASSERT_EQ(symlink((root_ + "/blob").c_str(), file.c_str()), 0);
  EXPECT_OK(Open(*cache, path));
}

// Whatever it is called.
TEST_F(CheckpointCacheTest, AFileOfTheIndexThatIsALinkOutIsRefused) {
  const TempDir outside;
  CheckpointCache* const cache = NewCache();
  const std::string path = IndexOf("model");
  ASSERT_OK(Open(*cache, path));
  std::filesystem::copy_file(path + "/w.bin", outside.Join("w.bin"));
  std::filesystem::remove(path + "/w.bin");
  ASSERT_EQ(symlink(outside.Join("w.bin").c_str(), (path + "/w.bin").c_str()),
            0);
  EXPECT_THAT(Open(*cache, path),
              StatusIs(absl::StatusCode::kPermissionDenied, Not("")));
  EXPECT_THAT(Open(*NewCache(), path),
              StatusIs(absl::StatusCode::kPermissionDenied, Not("")));
}

TEST_F(CheckpointCacheTest, AFileThatIsWrittenToIsAnotherCheckpoint) {
  for (const char* name : {"a", "b"}) {
    CheckpointCache* const cache = NewCache();
    const bool is_dcp = std::string(name) == "b";
    const std::string path =
        is_dcp ? Golden("torch-2.11/sharded") : IndexOf(name);
    const std::string file = path + (is_dcp ? "/__0_0.distcp" : "/w.bin");
    ASSERT_OK_AND_ASSIGN(const auto before, Open(*cache, path));
    std::filesystem::last_write_time(
        file, std::filesystem::last_write_time(file) + std::chrono::seconds(1));
    ASSERT_OK_AND_ASSIGN(const auto after, Open(*cache, path));
    EXPECT_NE(before, after);
    EXPECT_NE(before->etag(), after->etag());
    EXPECT_EQ(cache->num_open(), 1u);
  }
}

// One has opened it; the other may not read the file that a link leads to.
TEST_F(CheckpointCacheTest, AnIndexThatComesToBinFilesIsSeen) {
  CheckpointCache* const cache = NewCache();
  const std::string archive = Golden("torch-2.11/archive.pt");
  const std::string directory = root_ + "/bin";
  std::filesystem::create_directories(directory);
  for (const char* name : {"/pytorch_model.bin", "/other.bin"}) {
    std::filesystem::copy_file(archive, directory + name);
  }
  ASSERT_OK_AND_ASSIGN(const auto without, Open(*cache, directory));
  EXPECT_EQ(without->checkpoint().files().names()[0], "pytorch_model.bin");
  dir_.WriteFile("bin/pytorch_model.bin.index.json",
                 "{\"weight_map\": {\"base\": \"other.bin\"}}");
  ASSERT_OK_AND_ASSIGN(const auto with, Open(*cache, directory));
  EXPECT_EQ(with->checkpoint().files().names()[0], "other.bin");
}

TEST_F(CheckpointCacheTest, WhatIsOpenIsSharedByThoseOfTheSameRightsOnly) {
  const std::string path = IndexOf("mine/model");
  std::filesystem::create_directory(root_ + "/theirs");
  std::filesystem::rename(path + "/w.bin", root_ + "/theirs/w.bin");
  ASSERT_EQ(symlink("../../theirs/w.bin", (path + "/w.bin").c_str()), 0);
  CheckpointCache* const cache = NewCache();
  ASSERT_OK_AND_ASSIGN(const auto opened, Open(*cache, path));
  const std::string mine = root_ + "/mine";
  const Client other("other", {{.path = mine, .real_path = mine}});
  EXPECT_THAT(OpenAs(other, *cache, path),
              StatusIs(absl::StatusCode::kPermissionDenied, Not("")));
  const Client same("same", {{.path = root_, .real_path = root_}});
  ASSERT_OK_AND_ASSIGN(const auto shared, OpenAs(same, *cache, path));
  EXPECT_EQ(opened, shared);
}

// As a mount whose server is gone.
TEST_F(CheckpointCacheTest, AFileSystemThatHangsKeepsItsOwnRootOnly) {
  HookedFileSystem fs;
  const std::string hung = root_ + "/hung";
  const std::string sound = root_ + "/sound";
  std::filesystem::create_directories(hung);
  std::filesystem::create_directories(sound);
  std::filesystem::rename(Golden("torch-2.11/sharded"), hung + "/a");
  std::filesystem::rename(Golden("torch-2.11/train"), sound + "/b");
  const Access access = *Access::Load({{.path = hung}, {.path = sound}}, "");
  const Client& client = access.server();
  absl::Notification answers;
  std::atomic<int> num_held = 0;
  fs.SetHook([&](absl::string_view operation, absl::string_view path) {
    if (operation != "OpenForRead" || !absl::StartsWith(path, hung)) return;
    ++num_held;
    answers.WaitForNotification();
  });
  RootThreads threads(access, 1, 1000);
  CheckpointCache cache(fs, threads, {.disk_timeout = absl::Milliseconds(100)});
  // The first holds the thread; the second waits for it.
  for (int i = 0; i < 2; ++i) {
    const Result result = OpenAs(client, cache, hung + "/a");
    EXPECT_THAT(result, StatusIs(absl::StatusCode::kUnavailable,
                                 HasSubstr("of root " + hung + " has not")));
    EXPECT_EQ(PlaceOf(result.status()).path, hung + "/a");
    EXPECT_GT(RetryAfterOf(result.status()), 0);
  }
  EXPECT_EQ(num_held, 1);
  CheckpointCache patient(fs, threads, {});
  EXPECT_OK(OpenAs(client, patient, sound + "/b"));
  answers.Notify();
  EXPECT_OK(OpenAs(client, patient, hung + "/a"));
  threads.Stop();
}

TEST_F(CheckpointCacheTest, LocatesForAllWhoAsk) {
  CheckpointCache* const cache = NewCache();
  ASSERT_OK_AND_ASSIGN(const auto shared,
                       Open(*cache, Golden("torch-2.11/sharded")));
  const auto num_entries =
      static_cast<uint32_t>(shared->checkpoint().entries().size());
  std::vector<absl::Notification> located(4 * num_entries);
  for (uint32_t i = 0; i < located.size(); ++i) {
    shared->Locate({i % num_entries}, [&, i](const absl::Status& status) {
      EXPECT_OK(status);
      located[i].Notify();
    });
  }
  for (const auto& notification : located) notification.WaitForNotification();
  for (const CheckpointEntry& entry : shared->checkpoint().entries()) {
    if (entry.tensor() == nullptr) continue;
    for (const ChunkLocation& location : entry.tensor()->locations) {
      EXPECT_TRUE(location.located);
    }
  }
}

TEST_F(CheckpointCacheTest, OneWhoseItemIsDamagedDoesNotFailOthers) {
  CheckpointCache* const cache = NewCache();
  const std::string path = Golden("torch-2.11/sharded");
  ASSERT_OK_AND_ASSIGN(const auto shared, Open(*cache, path));
  const std::string cut = path + "/__1_0.distcp";
  // The last item lacks its end.
  const uint64_t size = std::filesystem::file_size(cut) - 1;
  std::filesystem::resize_file(cut, size);
  const auto& entries = shared->checkpoint().entries();
  const auto& names = shared->checkpoint().files().names();
  int num_sound = 0;
  int num_damaged = 0;
  for (uint32_t i = 0; i < entries.size(); ++i) {
    const TensorEntry* tensor = entries[i].tensor();
    if (tensor == nullptr) continue;
    bool damaged = false;
    for (const ChunkLocation& location : tensor->locations) {
      const StorageInfo& item = location.item;
      damaged = damaged || (names[item.file] == "__1_0.distcp" &&
                            item.offset + item.length > size);
    }
    ++(damaged ? num_damaged : num_sound);
    EXPECT_EQ(Locate(*shared, {i}).ok(), !damaged) << entries[i].fqn;
  }
  EXPECT_GT(num_sound, 0);
  EXPECT_GT(num_damaged, 0);
}

}  // namespace
}  // namespace dcp::server
