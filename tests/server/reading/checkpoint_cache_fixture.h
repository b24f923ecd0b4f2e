// SPDX-License-Identifier: Apache-2.0
// CheckpointCacheFixture: caches over a directory with checkpoints, and calls
// that open them. For tests.
#ifndef TESTS_SERVER_READING_CHECKPOINT_CACHE_FIXTURE_H_
#define TESTS_SERVER_READING_CHECKPOINT_CACHE_FIXTURE_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/io/file_system.h"
#include "gtest/gtest.h"
#include "server/access/access.h"
#include "server/access/root_threads.h"
#include "server/memory/client_account.h"
#include "server/memory/memory_budget.h"
#include "server/reading/checkpoint_cache.h"
#include "server/reading/shared_checkpoint.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {

// The result of an opening.
using OpenResult = absl::StatusOr<std::shared_ptr<SharedCheckpoint>>;

class CheckpointCacheFixture : public ::testing::Test {
 protected:
  static constexpr uint64_t kMemoryBytes = uint64_t{256} << 20;

  CheckpointCacheFixture()
      : fs_(NewPosixFileSystem()),
        root_(std::filesystem::canonical(dir_.path()).string()),
        client_("me", {{.path = root_, .writable = false, .real_path = root_}}),
        access_(*Access::Load({{.path = root_}}, "")),
        threads_(access_,
                 {.num_threads = 2, .per_client = 2, .max_waiting = 1000}) {}

  CheckpointCache* NewCache(CheckpointCacheLimits limits = {}) {
    return caches_
        .emplace_back(std::make_unique<CheckpointCache>(
            *fs_, threads_, threads_, budget_, limits))
        .get();
  }

  OpenResult Open(CheckpointCache& cache, const std::string& path,
                  int64_t rank = -1) {
    return OpenAs(client_, cache, path, rank);
  }

  OpenResult OpenAs(const Client& client, CheckpointCache& cache,
                    const std::string& path, int64_t rank = -1) {
    return Call(client, cache, path, rank).Wait();
  }

  // A call that opens a checkpoint.
  class Call {
   public:
    Call(const Client& client, CheckpointCache& cache, const std::string& path,
         int64_t rank = -1)
        : Call(client, cache, {.path = path, .open = {.rank = rank}}) {}
    Call(const Client& client, CheckpointCache& cache,
         const SourceSpec& source) {
      const auto account = std::make_shared<ClientAccount>(
          client.name(), ClientLimits{.memory_bytes = kMemoryBytes});
      cache.Open({.client = &client, .account = account}, source,
                 gone_.get_token(), [this](OpenResult opened) {
                   result_ = std::move(opened);
                   opened_.Notify();
                 });
    }

    // The client cancels.
    void Leave() { gone_.request_stop(); }
    OpenResult Wait() {
      opened_.WaitForNotification();
      return result_;
    }

   private:
    std::stop_source gone_;
    OpenResult result_ = absl::UnknownError("not called");
    absl::Notification opened_;
  };

  static absl::Status Locate(SharedCheckpoint& shared,
                             std::vector<uint32_t> entries) {
    absl::Status status;
    absl::Notification located;
    shared.Locate("me", std::move(entries), [&](absl::Status result) {
      status = std::move(result);
      located.Notify();
    });
    located.WaitForNotification();
    return status;
  }

  // A safetensors file with another suffix, and an index that names it.
  std::string WriteIndexedModel(const std::string& name) {
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
    // With this file the folder looks like a checkpoint to code that goes by
    // names.
    dir_.WriteFile(name + "/x.safetensors", "");
    return directory;
  }

  std::string Golden(const std::string& name) {
    return std::filesystem::canonical(testing::CopyGolden(dir_, name)).string();
  }

  const testing::TempDir dir_;
  const std::unique_ptr<FileSystem> fs_;
  const std::string root_;
  const Client client_;
  MemoryBudget budget_{kMemoryBytes};
  std::vector<std::unique_ptr<CheckpointCache>> caches_;
  const Access access_;
  RootThreads threads_;  // last: the tasks use the caches
};

}  // namespace dcp::server

#endif  // TESTS_SERVER_READING_CHECKPOINT_CACHE_FIXTURE_H_
