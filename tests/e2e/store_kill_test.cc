// SPDX-License-Identifier: Apache-2.0
// dcp-convert processes that write into real object stores and are killed at
// random: there is always the old checkpoint or the new one, whole, and the
// next process ends the work; also where several processes share a conversion.
// --rounds says how often.
#include <cstdint>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/destination/litter.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/verify/verify.h"
#include "dcp/io/file_systems/default_file_system.h"
#include "gtest/gtest.h"
#include "tests/server/server_process.h"
#include "tests/testing/gs_server.h"
#include "tests/testing/object_server.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

ABSL_FLAG(int, rounds, 3, "conversions of each kind");

namespace dcp {
namespace {

using ::dcp::server::ServerProcess;
using ::dcp::testing::GsServer;
using ::dcp::testing::ObjectServer;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::TempDir;

// Checkpoint names: DCP in several files, and one file with two parts.
constexpr absl::string_view kNames[] = {"dcp", "model.pt"};

class StoreKillTest : public ::testing::Test {
 protected:
  StoreKillTest() : server_(ObjectServer::Get()), fs_(NewDefaultFileSystem()) {
    for (const uint32_t seed : {0u, 1u}) {
      SampleState state;
      for (int i = 0; i < 12; ++i) {
        state.Add(SampleTensor(absl::StrCat("layer", i, ".weight"),
                               DType::kFloat32, {512, 500}, seed));
      }
      SingleProcessCoordinator coordinator;
      EXPECT_OK(Save(*fs_, Source(seed), state.state(), coordinator, {}));
    }
  }

  std::string Source(uint32_t number) const {
    return dir_.Join(absl::StrCat("source", number));
  }

  static std::vector<std::string> Words(const std::string& src,
                                        const std::string& dst) {
    return {"tests/testing/programs/dcp-convert",
            "convert",
            src,
            dst,
            "--overwrite",
            "--progress",
            "none",
            "--max-memory",
            "64MiB"};
  }

  // Conversions to each of kNames below `run`, killed at random.
  void KillConversionsInto(const std::string& run);

  // Which source is at `dst`: 0 or 1; -1 for none. While this reads, the server
  // may still carry out the last request from a killed process. The read then
  // fails because the object was replaced. That happens once.
  int WhatIsAt(const std::string& dst) {
    absl::StatusOr<int> found = ReadWhatIsAt(dst);
    if (absl::IsFailedPrecondition(found.status())) found = ReadWhatIsAt(dst);
    EXPECT_OK(found.status()) << dst;
    return found.value_or(-1);
  }

  absl::StatusOr<int> ReadWhatIsAt(const std::string& dst) {
    const auto opened = Checkpoint::Open(*fs_, dst, {});
    if (absl::IsNotFound(opened.status())) return -1;
    DCP_RETURN_IF_ERROR(opened.status());
    DCP_ASSIGN_OR_RETURN(const VerifyReport report,
                         VerifyCheckpoint(*fs_, dst, {}));
    EXPECT_TRUE(report.findings.empty()) << dst;
    for (const int number : {0, 1}) {
      DCP_ASSIGN_OR_RETURN(
          const DiffReport diff,
          DiffCheckpoints(*fs_, Source(static_cast<uint32_t>(number)), dst,
                          DiffOptions()));
      if (diff.findings.empty()) return number;
    }
    return absl::DataLossError("it holds neither source");
  }

  void RemoveAll(const std::string& path) {
    const auto entries = fs_->List(path);
    if (!entries.ok()) {
      EXPECT_OK(fs_->Remove(path));
      return;
    }
    for (const DirectoryEntry& entry : *entries) {
      EXPECT_OK(fs_->Remove(JoinPath(path, entry.name)));
    }
  }

  const TempDir dir_;
  ObjectServer& server_;
  const std::unique_ptr<FileSystem> fs_;
  std::mt19937_64 random_{static_cast<uint64_t>(GTEST_FLAG_GET(random_seed))};
};

void StoreKillTest::KillConversionsInto(const std::string& run) {
  std::cout << "seed " << GTEST_FLAG_GET(random_seed) << std::endl;
  int num_new = 0;
  int num_old = 0;
  for (const absl::string_view name : kNames) {
    const std::string dst = JoinPath(run, name);
    int there = -1;
    for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      SCOPED_TRACE(absl::StrCat(name, " round ", round));
      const int next = there == 0 ? 1 : 0;
      ServerProcess process(Words(Source(static_cast<uint32_t>(next)), dst));
      process.LetRun(
          absl::Milliseconds(std::uniform_int_distribution(0, 700)(random_)));
      process.Kill();
      const int found = WhatIsAt(dst);
      EXPECT_TRUE(found == there || found == next) << found;
      ++(found == next ? num_new : num_old);
      there = found;
    }
    ServerProcess last(Words(Source(1), dst));
    EXPECT_EQ(last.Wait(), 0) << last.said();
    EXPECT_EQ(WhatIsAt(dst), 1);
  }
  std::cout << num_new << " new, " << num_old << " old" << std::endl;
  // It finds the dead processes' files, and nothing else.
  const absl::StatusOr<Litter> litter = FindLitter(*fs_, run, INT64_MAX, {});
  ASSERT_OK(litter.status());
  EXPECT_OK(RemoveLitter(*fs_, *litter, {}));
  EXPECT_TRUE(FindLitter(*fs_, run, INT64_MAX, {})->uploads.empty());
  for (const absl::string_view name : kNames) {
    EXPECT_EQ(WhatIsAt(JoinPath(run, name)), 1);
  }
}

TEST_F(StoreKillTest, KeepsTheOldOrTheNewCheckpoint) {
  KillConversionsInto(absl::StrCat("s3://", ObjectServer::kBucket, "/kills"));
}

TEST_F(StoreKillTest, KeepsTheOldOrTheNewCheckpointInGooglesStore) {
  GsServer::Get();
  KillConversionsInto(absl::StrCat("gs://", GsServer::kBucket, "/kills"));
}

// The files for a conversion that workers share. Each round uses another one,
// because a directory with safetensors replaces nothing.
struct SharedKind {
  std::string name;
  std::vector<std::string> options;
};

std::vector<SharedKind> SharedKinds() {
  return {{"dcp", {"--to", "dcp", "--mesh", "shard=7"}},
          {"hf", {"--to", "safetensors", "--max-shard-size", "2MB"}},
          {"model.safetensors", {}}};
}

TEST_F(StoreKillTest, WorkersSurviveKillsAndRestarts) {
  std::cout << "seed " << GTEST_FLAG_GET(random_seed) << std::endl;
  const std::string run =
      absl::StrCat("s3://", ObjectServer::kBucket, "/workers");
  int num_killed = 0;
  for (const SharedKind& kind : SharedKinds()) {
    for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      SCOPED_TRACE(absl::StrCat(kind.name, " round ", round));
      const std::string place = JoinPath(run, absl::StrCat("round-", round));
      const std::string dst = JoinPath(place, kind.name);
      // Starts workers; the first `num_victims` are killed.
      const auto work = [&](int count, int num_victims) {
        std::vector<std::unique_ptr<ServerProcess>> workers;
        for (int i = 0; i < count; ++i) {
          std::vector<std::string> words = Words(Source(0), dst);
          words.insert(words.end(), kind.options.begin(), kind.options.end());
          words.push_back("--share");
          words.push_back(absl::StrCat(i, "/", count));
          workers.push_back(std::make_unique<ServerProcess>(words));
        }
        for (int i = 0; i < count; ++i) {
          ServerProcess& worker = *workers[static_cast<size_t>(i)];
          if (i < num_victims) {
            worker.LetRun(absl::Milliseconds(
                std::uniform_int_distribution(0, 700)(random_)));
            if (worker.Kill()) ++num_killed;
          } else {
            EXPECT_EQ(worker.Wait(), 0) << worker.said();
          }
        }
      };
      const int count = std::uniform_int_distribution(1, 4)(random_);
      work(count, std::uniform_int_distribution(1, count)(random_));
      work(std::uniform_int_distribution(1, 4)(random_), 0);
      EXPECT_EQ(WhatIsAt(dst), 0);
      // A worker may have been killed when the rest was done.
      work(1, 0);
      const absl::StatusOr<std::vector<DirectoryEntry>> entries =
          fs_->List(place);
      ASSERT_OK(entries.status());
      EXPECT_EQ(entries->size(), 1u) << entries->front().name;
      // Uploads from the second in which the checkpoint appeared.
      const absl::StatusOr<Litter> litter =
          FindLitter(*fs_, place, INT64_MAX, {});
      ASSERT_OK(litter.status());
      EXPECT_TRUE(litter->files.empty());
      EXPECT_OK(RemoveLitter(*fs_, *litter, {}));
      for (const DirectoryEntry& entry : *entries) {
        RemoveAll(JoinPath(place, entry.name));
      }
      if (HasFailure()) return;
    }
  }
  std::cout << num_killed << " killed" << std::endl;
}

}  // namespace
}  // namespace dcp

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  absl::ParseCommandLine(argc, argv);
  return RUN_ALL_TESTS();
}
