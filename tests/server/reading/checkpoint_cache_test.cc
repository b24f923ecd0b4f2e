// SPDX-License-Identifier: Apache-2.0

#include "server/reading/checkpoint_cache.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "dcp/base/error_place.h"
#include "dcp/format/safetensors/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/rpc_status.h"
#include "tests/server/hooked_file_system.h"
#include "tests/server/reading/checkpoint_cache_fixture.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::CopyGolden;
using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;
using ::testing::Not;

using CheckpointCacheTest = CheckpointCacheFixture;

TEST_F(CheckpointCacheTest, ReturnsTheSameUntilReplaced) {
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

TEST_F(CheckpointCacheTest, ConcurrentCallsOpenOnce) {
  CheckpointCache* const cache = NewCache();
  const std::string path = Golden("torch-2.11/train");
  constexpr size_t kCalls = 50;
  const auto account = std::make_shared<ClientAccount>(
      client_.name(), ClientLimits{.memory_bytes = kMemoryBytes});
  std::vector<OpenResult> results(kCalls, absl::UnknownError(""));
  std::vector<absl::Notification> opened(kCalls);
  for (size_t i = 0; i < kCalls; ++i) {
    cache->Open({.client = &client_, .account = account},
                {.path = path, .open = {}}, {}, [&, i](OpenResult result) {
                  results[i] = std::move(result);
                  opened[i].Notify();
                });
  }
  for (const auto& notification : opened) notification.WaitForNotification();
  for (const OpenResult& result : results) {
    ASSERT_OK(result);
    EXPECT_EQ(*result, *results[0]);
  }
}

TEST_F(CheckpointCacheTest, EvictsTheLeastRecentlyUsed) {
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

TEST_F(CheckpointCacheTest, LimitsIndexMemory) {
  CheckpointCache* const cache = NewCache({.index_bytes = 1});
  const std::string a = Golden("torch-2.11/sharded");
  const std::string b = Golden("torch-2.11/train");
  {
    // A single checkpoint may be larger than the limit.
    ASSERT_OK_AND_ASSIGN(const auto held, Open(*cache, a));
    EXPECT_THAT(Open(*cache, b), StatusIs(absl::StatusCode::kResourceExhausted,
                                          HasSubstr("indices")));
  }
  EXPECT_OK(Open(*cache, b));
  EXPECT_OK(Open(*cache, a));
}

TEST_F(CheckpointCacheTest, ErrorsNameThePath) {
  CheckpointCache* const cache = NewCache();
  const std::string missing = root_ + "/missing";
  const OpenResult result = Open(*cache, missing);
  EXPECT_THAT(result, StatusIs(absl::StatusCode::kNotFound, Not("")));
  EXPECT_EQ(StatusPlace(result.status()).path, missing);
  EXPECT_THAT(Open(*cache, "/etc"),
              StatusIs(absl::StatusCode::kPermissionDenied, Not("")));
  EXPECT_THAT(Open(*cache, root_), StatusIs(absl::StatusCode::kNotFound,
                                            HasSubstr("not a checkpoint")));
}

// A path inside the root to files that lie elsewhere.
TEST_F(CheckpointCacheTest, RefusesLinksOutOfTheRoot) {
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
  // A link that stays inside is followed, such as one in a Hugging Face cache.
  std::filesystem::copy_file(secret, root_ + "/blob");
  ASSERT_EQ(unlink(file.c_str()), 0);
  ASSERT_EQ(symlink((root_ + "/blob").c_str(), file.c_str()), 0);
  EXPECT_OK(Open(*cache, path));
}

// The file's name does not matter.
TEST_F(CheckpointCacheTest, RefusesIndexedFilesThatLinkOut) {
  const TempDir outside;
  CheckpointCache* const cache = NewCache();
  const std::string path = WriteIndexedModel("model");
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

TEST_F(CheckpointCacheTest, SharesOnlyBetweenClientsWithTheSameRights) {
  const std::string path = WriteIndexedModel("mine/model");
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

// Like a mount without a server.
TEST_F(CheckpointCacheTest, HangingFileSystemBlocksOnlyOneRoot) {
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
  RootThreads threads(access, {.max_waiting = 1000});
  CheckpointCache cache(fs, threads, threads, budget_,
                        {.disk_timeout = absl::Milliseconds(100)});
  // The first holds the thread; the second waits for it.
  for (int i = 0; i < 2; ++i) {
    const OpenResult result = OpenAs(client, cache, hung + "/a");
    EXPECT_THAT(result, StatusIs(absl::StatusCode::kUnavailable,
                                 HasSubstr("of root " + hung + " has not")));
    EXPECT_EQ(StatusPlace(result.status()).path, hung + "/a");
    EXPECT_GT(RetryAfterMs(result.status()), 0);
  }
  EXPECT_EQ(num_held, 1);
  CheckpointCache patient(fs, threads, threads, budget_, {});
  EXPECT_OK(OpenAs(client, patient, sound + "/b"));
  answers.Notify();
  EXPECT_OK(OpenAs(client, patient, hung + "/a"));
  threads.Stop();
}

// Opens a model with shards; the hook holds it at one of them.
class HeldOpenTest : public CheckpointCacheTest {
 protected:
  static constexpr int kNumShards = 20;
  static constexpr int kHeldShard = 3;
  static constexpr int kOpenedThen = kHeldShard + 1;

  HeldOpenTest() : path_(root_ + "/shards") {
    for (int i = 0; i < kNumShards; ++i) {
      const SafetensorsTensor tensor{.name = absl::StrCat("w", i),
                                     .dtype = DType::kUInt8,
                                     .shape = {1},
                                     .begin = 0,
                                     .end = 1};
      dir_.WriteFile(absl::StrFormat("shards/%02d.safetensors", i),
                     WriteSafetensorsHeader({tensor}, {}) + "x");
    }
    hooked_.SetHook(
        [this](absl::string_view operation, absl::string_view path) {
          if (operation != "OpenForRead" || !absl::StartsWith(path, path_))
            return;
          if (num_opened_++ != kHeldShard + num_heads_) return;
          held_.Notify();
          answers_.WaitForNotification();
        });
  }
  ~HeldOpenTest() override { threads_.Stop(); }

  // Returns once the cache has recorded the earlier calls: one of the two
  // threads is held, and the other takes calls in order.
  void WaitForCalls() {
    EXPECT_THAT(Open(cache_, root_ + "/missing"),
                StatusIs(absl::StatusCode::kNotFound));
  }

  const std::string path_;
  // The first file is opened once more, to determine its format.
  const int num_heads_ = 1;
  std::atomic<int> num_opened_ = 0;
  absl::Notification held_;
  absl::Notification answers_;
  HookedFileSystem hooked_;
  CheckpointCache cache_{hooked_, threads_, threads_, budget_, {}};
};

TEST_F(HeldOpenTest, OneWaitingClientKeepsTheOpeningAlive) {
  Call first(client_, cache_, path_);
  held_.WaitForNotification();
  Call second(client_, cache_, path_);
  WaitForCalls();
  first.Leave();
  EXPECT_THAT(first.Wait(), StatusIs(absl::StatusCode::kCancelled));
  answers_.Notify();
  EXPECT_OK(second.Wait());
  EXPECT_EQ(num_opened_, num_heads_ + kNumShards);
}

TEST_F(HeldOpenTest, OpeningEndsWhenTheLastClientLeaves) {
  Call first(client_, cache_, path_);
  held_.WaitForNotification();
  Call second(client_, cache_, path_);
  WaitForCalls();
  for (Call* const call : {&second, &first}) {
    call->Leave();
    EXPECT_THAT(call->Wait(), StatusIs(absl::StatusCode::kCancelled));
  }
  answers_.Notify();
  threads_.Stop();
  EXPECT_EQ(num_opened_, num_heads_ + kOpenedThen);
  EXPECT_EQ(cache_.num_open(), 0u);
}

TEST_F(HeldOpenTest, NextClientOpensAgainAfterACancelledOpening) {
  Call first(client_, cache_, path_);
  held_.WaitForNotification();
  first.Leave();
  // One call comes while the disk still holds the thread, and one later.
  Call second(client_, cache_, path_);
  WaitForCalls();
  answers_.Notify();
  ASSERT_OK_AND_ASSIGN(const auto opened, second.Wait());
  EXPECT_EQ(opened->checkpoint().entries().size(), size_t{kNumShards});
  EXPECT_EQ(num_opened_, num_heads_ + kOpenedThen + num_heads_ + kNumShards);
  EXPECT_THAT(Open(cache_, path_), IsOkAndHolds(opened));
  EXPECT_EQ(cache_.num_open(), 1u);
}

TEST_F(HeldOpenTest, CheckpointIsOpenAfterATimeout) {
  CheckpointCache hurried(hooked_, threads_, threads_, budget_,
                          {.disk_timeout = absl::Milliseconds(1)});
  // Some calls may time out before their turn has come.
  std::vector<std::unique_ptr<Call>> calls;
  while (!held_.HasBeenNotified()) {
    calls.push_back(std::make_unique<Call>(client_, hurried, path_));
    EXPECT_THAT(calls.back()->Wait(), StatusIs(absl::StatusCode::kUnavailable));
  }
  for (const auto& call : calls) call->Leave();
  answers_.Notify();
  threads_.Stop();
  EXPECT_EQ(num_opened_, num_heads_ + kNumShards);
  EXPECT_EQ(hurried.num_open(), 1u);
}

}  // namespace
}  // namespace dcp::server
