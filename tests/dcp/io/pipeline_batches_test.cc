// SPDX-License-Identifier: Apache-2.0
// The order in which RunPipeline starts, fills and writes batches, and the
// blocks and requests that it uses at one time.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/io/block_pool.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"
#include "gtest/gtest.h"
#include "tests/dcp/io/pipeline_copy.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp::testing {
namespace {

// Forwards to another queue and counts the operations in flight.
class WatchingQueue final : public IoQueue {
 public:
  explicit WatchingQueue(std::unique_ptr<IoQueue> queue)
      : queue_(std::move(queue)) {}
  uint32_t depth() const override { return queue_->depth(); }
  uint32_t in_flight() const override { return queue_->in_flight(); }
  absl::Status Submit(IoRequest* request) override {
    ++Count(*request);
    both_ = both_ || (reads_ > 0 && writes_ > 0);
    reads_max_ = std::max(reads_max_, reads_);
    return queue_->Submit(request);
  }
  absl::Status Reap(std::vector<IoRequest*>& done) override {
    const size_t before = done.size();
    const absl::Status status = queue_->Reap(done);
    for (size_t i = before; i < done.size(); ++i) --Count(*done[i]);
    return status;
  }
  bool both() const { return both_; }
  uint64_t reads_max() const { return reads_max_; }

 private:
  uint64_t& Count(const IoRequest& request) {
    return request.op == IoRequest::Op::kRead ? reads_ : writes_;
  }

  std::unique_ptr<IoQueue> queue_;
  uint64_t reads_ = 0;
  uint64_t writes_ = 0;
  uint64_t reads_max_ = 0;
  bool both_ = false;
};

TEST(Pipeline, ReadsOfLaterBatchesOverlapWrites) {
  SimStorage fs;
  Files files(fs, "/", 500'000);
  BlockPool pool(8);
  WatchingQueue queue(*fs.NewQueue(16, pool.memory()));
  EXPECT_OK(files.job.Run(queue, pool));
  EXPECT_TRUE(queue.both());
  EXPECT_EQ(queue.reads_max(), 4u);  // half the pool
}

TEST(Pipeline, WritesBatchesWithoutReadsFromTheWholePool) {
  SimStorage fs;
  ASSERT_OK_AND_ASSIGN(const File dst, fs.Create("/d", 0, DirectMode::kOn));
  Engine engine(fs, 6);
  uint64_t at = 0;
  uint64_t free_min = UINT64_MAX;
  const auto next = [&](Batch& batch) -> absl::StatusOr<bool> {
    if (at == 40 * kDirectAlignment) return false;
    free_min = std::min(free_min, engine.pool.num_free());
    batch.writes.push_back({.file = dst, .offset = at, .length = 4096});
    batch.on_filled =
        [fill = static_cast<uint8_t>(at / 4096)](std::vector<Block>& blocks) {
          std::fill_n(blocks[0].data(), 4096, fill);
          return absl::OkStatus();
        };
    at += kDirectAlignment;
    return true;
  };
  TransferStats stats;
  EXPECT_OK(RunPipeline(
      *engine.queue, engine.pool, 1, next,
      [](FileHandle) { return DescribeAs("d"); }, {}, stats));
  EXPECT_EQ(free_min, 0u);
  ASSERT_OK_AND_ASSIGN(const std::string bytes, ReadFile(fs, "/d", 1e6, true));
  ASSERT_EQ(bytes.size(), 40u * 4096);
  for (size_t i = 0; i < bytes.size(); ++i) {
    ASSERT_EQ(static_cast<uint8_t>(bytes[i]), i / 4096);
  }
  EXPECT_OK(fs.Close(dst));
}

// A wait for `next` waits only for the copies that `next` makes.
TEST(Pipeline, StartsBatchesAsLongAsBlocksAreFreeBeforeItFillsOne) {
  SimStorage fs;
  constexpr uint64_t kNumBlocks = 40;
  constexpr uint64_t kNumBatches = 100;
  ASSERT_OK_AND_ASSIGN(const File dst, fs.Create("/d", 0, DirectMode::kOn));
  Engine engine(fs, kNumBlocks);
  uint64_t num_started = 0;
  uint64_t num_filled = 0;
  TransferStats stats;
  const auto next = [&](Batch& batch) -> absl::StatusOr<bool> {
    if (num_started == kNumBatches) return false;
    ++num_started;
    batch.writes.push_back(
        {.file = {}, .offset = num_started * 4096, .length = 4096});
    batch.on_filled = [&](std::vector<Block>&) {
      EXPECT_GE(num_started, kNumBlocks);
      // Those before it are all on their way to the disk, or done.
      EXPECT_EQ(num_filled, engine.queue->in_flight() + stats.num_writes);
      batch.writes[0].file = dst;  // open by now
      ++num_filled;
      return absl::OkStatus();
    };
    return true;
  };
  EXPECT_OK(RunPipeline(
      *engine.queue, engine.pool, 1, next,
      [](FileHandle) { return DescribeAs("d"); }, {}, stats));
  EXPECT_EQ(num_filled, kNumBatches);
  EXPECT_EQ(stats.num_writes, kNumBatches);
  EXPECT_OK(fs.Close(dst));
}

// Batches with and without reads, with blocks to write, or empty, in pools and
// queues of every size.
TEST(Pipeline, NeverDeadlocks) {
  SimStorage fs({.percent_short = 20, .percent_interrupted = 20});
  ASSERT_OK(WriteFile(fs, "/s", RandomBytes(40'000)));
  ASSERT_OK_AND_ASSIGN(const File src,
                       fs.OpenForRead("/s", DirectMode::kOn, true));
  ASSERT_OK_AND_ASSIGN(const File dst, fs.Create("/d", 0, DirectMode::kOn));
  std::mt19937_64 random(7);
  for (uint64_t round = 0; round < 300; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    BlockPool pool(2 + random() % 12);
    const auto queue =
        *fs.NewQueue(static_cast<uint32_t>(1 + random() % 12), pool.memory());
    uint64_t num_started = 0;
    uint64_t num_filled = 0;
    const auto next = [&](Batch& batch) -> absl::StatusOr<bool> {
      if (num_started == 30) return false;
      for (uint64_t i = random() % 4; i > 0; --i) {
        batch.reads.push_back(
            {.file = src, .offset = random() % 39'000, .length = 1000});
      }
      batch.on_read = [](size_t, ByteSpan) { return absl::OkStatus(); };
      for (uint32_t i = 0; i < batch.blocks.size(); ++i) {
        if (random() % 3 == 0) continue;
        batch.writes.push_back(
            {.file = dst, .offset = 4096 * i, .length = 4096, .block = i});
      }
      batch.on_filled = [&, number = num_started](std::vector<Block>&) {
        EXPECT_EQ(number, num_filled++);
        return absl::OkStatus();
      };
      ++num_started;
      return true;
    };
    TransferStats stats;
    ASSERT_OK(RunPipeline(
        *queue, pool, random() % 5, next,
        [](FileHandle) { return DescribeAs("?"); }, {}, stats));
    ASSERT_EQ(num_filled, 30u);
    ASSERT_EQ(pool.num_free(), pool.num_blocks());
  }
  EXPECT_OK(fs.Close(src));
  EXPECT_OK(fs.Close(dst));
}

TEST(Pipeline, ReadsWithTheWholePoolIfBatchesNeedNoBlocks) {
  SimStorage fs;
  const std::string expected = RandomBytes(200'000);
  ASSERT_OK(WriteFile(fs, "/s", expected));
  ASSERT_OK_AND_ASSIGN(const File src,
                       fs.OpenForRead("/s", DirectMode::kOn, true));
  BlockPool pool(kMinBlocks);
  WatchingQueue queue(*fs.NewQueue(16, pool.memory()));
  std::string got(expected.size(), '\0');
  uint64_t at = 0;
  const auto next = [&](Batch& batch) -> absl::StatusOr<bool> {
    EXPECT_TRUE(batch.blocks.empty());
    if (at == expected.size()) return false;
    for (int i = 0; i < 5; ++i, at += 1000) {
      batch.reads.push_back({.file = src, .offset = at, .length = 1000});
    }
    batch.on_read = [&got, first = at - 5000](size_t index, ByteSpan data) {
      std::copy_n(data.begin(), 1000,
                  got.begin() + static_cast<int64_t>(first + 1000 * index));
      return absl::OkStatus();
    };
    return true;
  };
  TransferStats stats;
  EXPECT_OK(RunPipeline(
      queue, pool, 0, next, [](FileHandle) { return DescribeAs("s"); }, {},
      stats));
  EXPECT_TRUE(got == expected);
  EXPECT_EQ(queue.reads_max(), kMinBlocks);
  EXPECT_EQ(stats.num_reads, 200u);
  EXPECT_OK(fs.Close(src));
}

// Reaps all requests in flight at once, as with a fast disk.
class WholesaleQueue final : public IoQueue {
 public:
  explicit WholesaleQueue(std::unique_ptr<IoQueue> queue)
      : queue_(std::move(queue)) {}
  uint32_t depth() const override { return queue_->depth(); }
  uint32_t in_flight() const override { return queue_->in_flight(); }
  absl::Status Submit(IoRequest* request) override {
    return queue_->Submit(request);
  }
  absl::Status Reap(std::vector<IoRequest*>& done) override {
    while (queue_->in_flight() > 0) DCP_RETURN_IF_ERROR(queue_->Reap(done));
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<IoQueue> queue_;
};

TEST(Pipeline, GoesOnAfterABatchThatIsOnlyRead) {
  SimStorage fs;
  ASSERT_OK(WriteFile(fs, "/s", RandomBytes(40'000)));
  ASSERT_OK_AND_ASSIGN(const File src,
                       fs.OpenForRead("/s", DirectMode::kOn, true));
  for (uint64_t num_blocks = 2; num_blocks <= 9; ++num_blocks) {
    BlockPool pool(num_blocks);
    WholesaleQueue queue(*fs.NewQueue(16, pool.memory()));
    uint64_t num_batches = 0;
    const auto next = [&](Batch& batch) -> absl::StatusOr<bool> {
      batch.reads.push_back(
          {.file = src, .offset = 1000 * (num_batches % 40), .length = 1000});
      batch.on_read = [](size_t, ByteSpan) { return absl::OkStatus(); };
      return ++num_batches <= 40;
    };
    TransferStats stats;
    EXPECT_OK(RunPipeline(
        queue, pool, num_blocks / 4, next,
        [](FileHandle) { return DescribeAs("s"); }, {}, stats));
    EXPECT_EQ(stats.num_reads, 40u) << num_blocks;
  }
  EXPECT_OK(fs.Close(src));
}

TEST(Pipeline, AcceptsEmptyBatches) {
  SimStorage fs;
  Engine engine(fs);
  uint64_t num_batches = 0;
  uint64_t num_filled = 0;
  const auto next = [&](Batch& batch) -> absl::StatusOr<bool> {
    batch.on_filled = [&](std::vector<Block>&) {
      ++num_filled;
      return absl::OkStatus();
    };
    return ++num_batches <= 100;
  };
  TransferStats stats;
  EXPECT_OK(RunPipeline(
      *engine.queue, engine.pool, 1, next,
      [](FileHandle) { return DescribeAs("none"); }, {}, stats));
  EXPECT_EQ(num_filled, 100u);
}

}  // namespace
}  // namespace dcp::testing
