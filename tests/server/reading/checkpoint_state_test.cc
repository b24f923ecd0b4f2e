// SPDX-License-Identifier: Apache-2.0

#include "server/reading/checkpoint_state.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/reading/checkpoint_cache_fixture.h"
#include "tests/testing/golden.h"
#include "tests/testing/old_time.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using CheckpointStateTest = CheckpointCacheFixture;

TEST_F(CheckpointStateTest, RanksHaveDifferentEtags) {
  CheckpointCache* const cache = NewCache();
  const std::string path = Golden("torch-2.11/sharded");
  ASSERT_OK_AND_ASSIGN(const auto all, Open(*cache, path));
  ASSERT_OK_AND_ASSIGN(const auto one, Open(*cache, path, 1));
  EXPECT_NE(all, one);
  EXPECT_NE(all->etag(), one->etag());
}

TEST_F(CheckpointStateTest, WritingToAFileChangesTheEtag) {
  for (const char* name : {"a", "b"}) {
    CheckpointCache* const cache = NewCache();
    const bool is_dcp = std::string(name) == "b";
    const std::string path =
        is_dcp ? Golden("torch-2.11/sharded") : WriteIndexedModel(name);
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

// A broken stream would otherwise continue in another state.
TEST_F(CheckpointStateTest, RewritingWithTheOldTimeChangesTheEtag) {
  for (const char* file :
       {"torch-2.11/archive.pt", "torch-2.11/sharded/__0_0.distcp"}) {
    CheckpointCache* const cache = NewCache();
    const bool is_dcp = absl::EndsWith(file, ".distcp");
    const std::string path =
        Golden(is_dcp ? "torch-2.11/sharded" : "torch-2.11/archive.pt");
    ASSERT_OK_AND_ASSIGN(const auto before, Open(*cache, path));
    const std::string part = is_dcp ? path + "/__0_0.distcp" : path;
    testing::RewriteWithOldTime(part, testing::ReadFile(part));
    ASSERT_OK_AND_ASSIGN(const auto after, Open(*cache, path));
    EXPECT_NE(before->etag(), after->etag());
  }
}

// All snapshots are there before and after.
TEST_F(CheckpointStateTest, HubCacheChangesWithTheCurrentSnapshot) {
  CheckpointCache* const cache = NewCache();
  const std::string golden = Golden("torch-2.11/hugging_face");
  const std::string hub = root_ + "/models--org--name";
  for (const char* commit : {"a", "b"}) {
    std::filesystem::create_directories(hub + "/snapshots");
    std::filesystem::copy(golden, hub + "/snapshots/" + commit);
  }
  std::string etags[2];
  for (const int i : {0, 1}) {
    dir_.WriteFile("models--org--name/refs/main", i == 0 ? "a" : "b");
    ASSERT_OK_AND_ASSIGN(const auto opened, Open(*cache, hub));
    EXPECT_THAT(opened->checkpoint().path(),
                ::testing::EndsWith(i == 0 ? "/a" : "/b"));
    etags[i] = opened->etag();
  }
  EXPECT_NE(etags[0], etags[1]);
}

// The index appears after the folder was opened without it.
TEST_F(CheckpointStateTest, DetectsANewIndexForBinFiles) {
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

// One client has opened it; another may not read the file that a link leads to.
// The tag that `latest` names, and the files below it, belong to a DeepSpeed
// checkpoint.
TEST_F(CheckpointStateTest, DeepSpeedCheckpointChangesWithThePointer) {
  CheckpointCache* const cache = NewCache();
  const std::string path = Golden("dialects/deepspeed/zero2_ws3");
  ASSERT_OK_AND_ASSIGN(const auto before, Open(*cache, path));
  EXPECT_EQ(before->checkpoint().dialect(), Dialect::kDeepSpeed);
  dir_.WriteFile("dialects/deepspeed/zero2_ws3/train.log", "step 1");
  ASSERT_OK_AND_ASSIGN(const auto same, Open(*cache, path));
  EXPECT_EQ(before, same);
  std::filesystem::rename(path + "/global_step1", path + "/global_step2");
  dir_.WriteFile("dialects/deepspeed/zero2_ws3/latest", "global_step2");
  ASSERT_OK_AND_ASSIGN(const auto after, Open(*cache, path));
  EXPECT_NE(before->etag(), after->etag());
}

}  // namespace
}  // namespace dcp::server
