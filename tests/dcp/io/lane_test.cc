// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/lane.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;

// Writes 20 pieces with the lane's number to a separate file, through a
// pipeline, and reads them back.
absl::Status WriteAndRead(FileSystem& fs, const std::string& directory,
                          Lane& lane, std::stop_token stop) {
  const std::string path =
      JoinPath(directory, absl::StrCat("lane", lane.index));
  const absl::StatusOr<File> file =
      fs.Create(path, 20 * kMaxDirectAlignment, DirectMode::kOn);
  if (!file.ok()) return file.status();
  uint64_t at = 0;
  const uint8_t fill = static_cast<uint8_t>(lane.index + 1);
  const auto next = [&](Batch& batch) -> absl::StatusOr<bool> {
    if (at == 20 * kMaxDirectAlignment) return false;
    std::fill_n(batch.blocks[0].data(), kMaxDirectAlignment, fill);
    batch.writes.push_back(
        {.file = *file, .offset = at, .length = kMaxDirectAlignment});
    at += kMaxDirectAlignment;
    return true;
  };
  TransferStats stats;
  absl::Status status = RunPipeline(
      *lane.queue, lane.pool, 1, next, [&](FileHandle) { return path; }, stop,
      stats);
  status.Update(fs.Close(*file));
  if (!status.ok()) return status;
  const absl::StatusOr<std::string> bytes = ReadFile(fs, path, 2 << 20, true);
  EXPECT_THAT(bytes, ::dcp::testing::IsOkAndHolds(std::string(
                         20 * kMaxDirectAlignment, static_cast<char>(fill))));
  return absl::OkStatus();
}

TEST(Lane, LanesMoveBytesAtOnceOnEveryFileSystem) {
  TempDir uring_dir;
  TempDir blocking_dir;
  SimStorage sim({.percent_short = 30, .percent_interrupted = 10});
  const auto uring = NewPosixFileSystem(QueueKind::kUring);
  const auto blocking = NewPosixFileSystem(QueueKind::kBlocking);
  struct Case {
    FileSystem& fs;
    std::string directory;
  };
  for (const Case& c : {Case{sim, "/"}, Case{*uring, uring_dir.path()},
                        Case{*blocking, blocking_dir.path()}}) {
    EXPECT_OK(RunLanes(c.fs, 4, 4 * kMinMemoryBytes, {},
                       [&](Lane& lane, std::stop_token stop) {
                         return WriteAndRead(c.fs, c.directory, lane, stop);
                       }));
  }
}

TEST(Lane, LanesShareMemoryEqually) {
  SimStorage fs;
  std::atomic<uint64_t> indices{0};
  EXPECT_OK(RunLanes(fs, 3, 3 * 5 * kBlockBytes + 7, {},
                     [&](Lane& lane, std::stop_token) {
                       EXPECT_EQ(lane.pool.num_blocks(), 5u);
                       EXPECT_EQ(lane.queue->depth(), 2 * kQueueDepth);
                       indices |= uint64_t{1} << lane.index;
                       return absl::OkStatus();
                     }));
  EXPECT_EQ(indices, 7u);
}

TEST(Lane, LanesTakeOnlyMemoryThatCanBeInFlight) {
  SimStorage fs;
  EXPECT_OK(
      RunLanes(fs, 1, uint64_t{1} << 40, {}, [&](Lane& lane, std::stop_token) {
        EXPECT_EQ(lane.pool.num_blocks(), 2 * kQueueDepth);
        return absl::OkStatus();
      }));
}

TEST(Lane, LanesTakeMoreMemoryForLargeBatches) {
  LaneMemory memory(uint64_t{1} << 40);
  const uint64_t in_flight = NumLaneBlocks(1, memory);
  memory.more_blocks = 30;
  EXPECT_EQ(NumLaneBlocks(1, memory), in_flight + 30);
  memory.memory_bytes = 10 * kBlockBytes;
  EXPECT_EQ(NumLaneBlocks(1, memory), 10u);
}

TEST(Lane, ALaneMayUseTheCallersPool) {
  TempDir dir;
  const auto fs = NewPosixFileSystem();
  BlockPool pool(3 * kQueueDepth);
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(RunLane(*fs, pool, {}, [&](Lane& lane, std::stop_token stop) {
      EXPECT_EQ(&lane.pool, &pool);
      return WriteAndRead(*fs, dir.path(), lane, stop);
    }));
    EXPECT_EQ(pool.num_free(), pool.num_blocks());
    EXPECT_OK(fs->Remove(JoinPath(dir.path(), "lane0")));
  }
  BlockPool small(kMinBlocks - 1);
  EXPECT_THAT(RunLane(*fs, small, {},
                      [](Lane&, std::stop_token) { return absl::OkStatus(); }),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

// Moves bytes on two lanes, and returns where each lane's blocks are.
std::vector<const uint8_t*> MoveOnTwoLanes(FileSystem& fs,
                                           const std::string& directory,
                                           LaneMemory memory, KeptLanes& kept) {
  memory.kept = &kept;
  std::vector<const uint8_t*> blocks(2);
  EXPECT_OK(RunLanes(fs, 2, memory, {}, [&](Lane& lane, std::stop_token stop) {
    blocks[lane.index] = lane.pool.memory().data();
    return WriteAndRead(fs, directory, lane, stop);
  }));
  for (const char* name : {"lane0", "lane1"}) {
    EXPECT_OK(fs.Remove(JoinPath(directory, name)));
  }
  return blocks;
}

TEST(Lane, LanesKeepBlocksForTheNextTransfer) {
  constexpr uint64_t kMemoryBytes = 2 * kMinMemoryBytes;
  TempDir dir;
  const auto fs = NewPosixFileSystem();
  KeptLanes kept;
  const auto move = [&](const LaneMemory& memory) {
    return MoveOnTwoLanes(*fs, dir.path(), memory, kept);
  };
  const std::vector<const uint8_t*> blocks = move(kMemoryBytes);
  EXPECT_EQ(move(kMemoryBytes), blocks);
  // One that failed may still have requests under way.
  LaneMemory memory(kMemoryBytes);
  memory.kept = &kept;
  EXPECT_FALSE(RunLanes(*fs, 2, memory, {}, [](Lane& lane, std::stop_token) {
                 return lane.index == 0 ? absl::OkStatus()
                                        : absl::InternalError("failed");
               }).ok());
  EXPECT_NE(kept.Take(0).pool, nullptr);
  EXPECT_EQ(kept.Take(1).pool, nullptr);
  move(kMemoryBytes);
  // Another number or size of blocks makes new blocks.
  move({2 * kMemoryBytes, 2 * kBlockBytes});
  EXPECT_EQ(kept.Take(0).pool->block_bytes(), 2 * kBlockBytes);
  move(2 * kMemoryBytes);
  EXPECT_EQ(kept.Take(0).pool->num_blocks(), kMemoryBytes / kBlockBytes);
}

TEST(Lane, ASingleLaneRunsOnTheCallingThread) {
  SimStorage fs;
  EXPECT_OK(
      RunLanes(fs, 1, kMinMemoryBytes, {},
               [caller = std::this_thread::get_id()](Lane&, std::stop_token) {
                 EXPECT_EQ(std::this_thread::get_id(), caller);
                 return absl::OkStatus();
               }));
}

// Returns when `stop` is requested.
absl::Status WaitForStop(std::stop_token stop) {
  std::atomic<bool> stopped{false};
  const std::stop_callback wake(stop, [&] {
    stopped = true;
    stopped.notify_all();
  });
  stopped.wait(false);
  return absl::CancelledError("stopped");
}

TEST(Lane, TheFirstErrorStopsTheOthersAndIsReturned) {
  SimStorage fs;
  EXPECT_THAT(RunLanes(fs, 3, 3 * kMinMemoryBytes, {},
                       [&](Lane& lane, std::stop_token stop) {
                         return lane.index == 1 ? absl::DataLossError("lane 1")
                                                : WaitForStop(stop);
                       }),
              StatusIs(absl::StatusCode::kDataLoss, "lane 1"));
}

TEST(Lane, AStopReachesAllLanes) {
  SimStorage fs;
  std::stop_source source;
  std::atomic<int> num_running{0};
  EXPECT_THAT(RunLanes(fs, 2, 2 * kMinMemoryBytes, source.get_token(),
                       [&](Lane&, std::stop_token stop) {
                         if (++num_running == 2) source.request_stop();
                         return WaitForStop(stop);
                       }),
              StatusIs(absl::StatusCode::kCancelled));
}

TEST(Lane, RefusesTooLittleMemory) {
  SimStorage fs;
  const auto work = [](Lane&, std::stop_token) { return absl::OkStatus(); };
  EXPECT_THAT(RunLanes(fs, 2, 2 * kMinMemoryBytes - 1, {}, work),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(absl::StrCat(kMinMemoryBytes))));
  EXPECT_THAT(RunLanes(fs, 0, kMinMemoryBytes, {}, work),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(Lane, ReportsAMissingQueue) {
  SimStorage fs;
  fs.CrashAfter(0);
  EXPECT_THAT(fs.MakeDirectory("/d"), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(RunLanes(fs, 2, 2 * kMinMemoryBytes, {},
                       [](Lane&, std::stop_token) {
                         ADD_FAILURE() << "ran";
                         return absl::OkStatus();
                       }),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("crashed")));
}

}  // namespace
}  // namespace dcp
