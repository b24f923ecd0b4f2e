// SPDX-License-Identifier: Apache-2.0

#include "server/reading/shared_checkpoint.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/reading/checkpoint_cache_fixture.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using SharedCheckpointTest = CheckpointCacheFixture;

TEST_F(SharedCheckpointTest, LocatesForConcurrentRequests) {
  CheckpointCache* const cache = NewCache();
  ASSERT_OK_AND_ASSIGN(const auto shared,
                       Open(*cache, Golden("torch-2.11/sharded")));
  const auto num_entries =
      static_cast<uint32_t>(shared->checkpoint().entries().size());
  std::vector<absl::Notification> located(4 * num_entries);
  for (uint32_t i = 0; i < located.size(); ++i) {
    shared->Locate("me", {i % num_entries}, [&, i](const absl::Status& status) {
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

TEST_F(SharedCheckpointTest, DamageFailsOnlyTheRequestForThatItem) {
  CheckpointCache* const cache = NewCache();
  const std::string path = Golden("torch-2.11/sharded");
  ASSERT_OK_AND_ASSIGN(const auto shared, Open(*cache, path));
  const std::string cut = path + "/__1_0.distcp";
  // The last item is cut short.
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
