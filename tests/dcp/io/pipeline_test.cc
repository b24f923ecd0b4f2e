#include "dcp/io/pipeline.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/error_place.h"
#include "dcp/base/error_side.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/io/block_pool.h"
#include "dcp/io/file_system.h"
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
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kDepth = 8;

std::string RandomBytes(uint64_t size) {
  std::mt19937_64 random(size);
  std::string bytes(AlignUp(size, 8), '\0');
  for (uint64_t at = 0; at < bytes.size(); at += 8) {
    const uint64_t word = random();
    std::memcpy(&bytes[at], &word, 8);
  }
  bytes.resize(size);
  return bytes;
}

std::string DescribeAs(const char* name) { return name; }

// Copies `src` to `dst`, `piece_bytes` of it in each block, by reads of at most
// `read_bytes`, which need not be aligned to anything.
struct Copy {
  File src;
  File dst;
  uint64_t size = 0;
  uint64_t piece_bytes = 16384;
  uint64_t read_bytes = 5000;
  uint64_t blocks_per_batch = 2;
  std::string expected;  // the source's bytes, to compare what reads are given

  uint64_t at = 0;  // how far `Next` came
  uint64_t num_filled = 0;
  absl::Status on_read_status;
  std::stop_source stop;
  uint64_t stop_after_batches = UINT64_MAX;
  TransferStats stats;

  bool Next(Batch& batch);
  void PlanReads(Batch& batch, uint64_t begin, uint64_t end);
  absl::Status Place(Batch& batch, uint64_t begin, size_t index, ByteSpan data);
  absl::Status Run(IoQueue& queue, BlockPool& pool);
};

bool Copy::Next(Batch& batch) {
  if (at == size) return false;
  const uint64_t begin = at;
  EXPECT_GE(batch.blocks.size(), 1u);
  EXPECT_LE(batch.blocks.size(), blocks_per_batch);
  for (uint32_t i = 0; i < batch.blocks.size() && at < size; ++i) {
    const uint64_t length = std::min(piece_bytes, size - at);
    batch.writes.push_back(
        {.file = dst, .offset = at, .length = length, .block = i});
    PlanReads(batch, at, at + length);
    at += length;
  }
  batch.on_read = [this, &batch, begin](size_t index, ByteSpan data) {
    return Place(batch, begin, index, data);
  };
  batch.on_filled = [this, begin, &batch](std::vector<Block>& blocks) {
    // In order: the first byte of each batch follows the last of the one
    // before. All of its bytes are there.
    EXPECT_EQ(begin, num_filled);
    for (const PlannedWrite& write : batch.writes) {
      EXPECT_TRUE(
          AsText(ByteSpan(blocks[write.block].data(), write.length)) ==
          absl::string_view(expected).substr(write.offset, write.length));
      num_filled += write.length;
    }
    if (stop_after_batches-- == 1) stop.request_stop();
    return absl::OkStatus();
  };
  return true;
}

void Copy::PlanReads(Batch& batch, uint64_t begin, uint64_t end) {
  while (begin < end) {
    const uint64_t length = std::min(read_bytes, end - begin);
    batch.reads.push_back({.file = src, .offset = begin, .length = length});
    begin += length;
  }
}

absl::Status Copy::Place(Batch& batch, uint64_t begin, size_t index,
                         ByteSpan data) {
  const PlannedRead& read = batch.reads[index];
  EXPECT_EQ(data.size(),
            std::min(read.length + kReadMarginBytes, src.size - read.offset));
  EXPECT_TRUE(AsText(data) ==
              absl::string_view(expected).substr(read.offset, data.size()));
  const uint64_t inside = read.offset - begin;
  std::copy_n(data.begin(), read.length,
              batch.blocks[inside / piece_bytes].data() + inside % piece_bytes);
  return on_read_status;
}

absl::Status Copy::Run(IoQueue& queue, BlockPool& pool) {
  const auto next = [this](Batch& batch) -> absl::StatusOr<bool> {
    return Next(batch);
  };
  const auto describe = [this](FileHandle handle) -> std::string {
    return DescribeAs(handle == src.handle ? "source" : "target");
  };
  const absl::Status status = RunPipeline(queue, pool, blocks_per_batch, next,
                                          describe, stop.get_token(), stats);
  // Whatever happened, nothing is held back.
  EXPECT_EQ(pool.num_free(), pool.num_blocks());
  EXPECT_EQ(queue.in_flight(), 0u);
  return status;
}

// A source with `size` bytes and a new target, ready to be copied.
struct Files {
  Files(FileSystem& file_system, const std::string& directory, uint64_t size,
        DirectMode direct = DirectMode::kOn)
      : fs(file_system),
        src(JoinPath(directory, "src")),
        dst(JoinPath(directory, "dst")) {
    job.expected = RandomBytes(size);
    job.size = size;
    EXPECT_OK(WriteFile(fs, src, job.expected));
    Open(direct);
  }
  ~Files() {
    EXPECT_OK(fs.Close(job.src));
    EXPECT_OK(fs.Close(job.dst));
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  void Open(DirectMode direct) {
    auto source = fs.OpenForRead(src, direct, /*follow_symlinks=*/true);
    auto target = fs.Create(dst, 0, direct);
    ASSERT_OK(source);
    ASSERT_OK(target);
    job.src = *source;
    job.dst = *target;
  }

  // The contents of the target, cut to the proper size.
  std::string Result() {
    EXPECT_OK(fs.Truncate(job.dst, job.size));
    return ReadFile(fs, dst, UINT64_MAX, true).value_or("unreadable");
  }

  FileSystem& fs;
  const std::string src;
  const std::string dst;
  Copy job;
};

struct Engine {
  explicit Engine(FileSystem& fs, uint64_t num_blocks = kMinBlocks,
                  uint32_t depth = kDepth)
      : pool(num_blocks), queue(*fs.NewQueue(depth, pool.memory())) {}
  absl::Status Run(Copy& job) { return job.Run(*queue, pool); }

  BlockPool pool;
  std::unique_ptr<IoQueue> queue;
};

TEST(Pipeline, CopiesEverySizeThroughEveryQueue) {
  for (const QueueKind kind : {QueueKind::kUring, QueueKind::kBlocking}) {
    for (const DirectMode direct : {DirectMode::kOn, DirectMode::kOff}) {
      for (const uint64_t size :
           {uint64_t{1}, uint64_t{4096}, uint64_t{4097}, uint64_t{300'001}}) {
        TempDir dir;
        const auto fs = NewPosixFileSystem(kind);
        Files files(*fs, dir.path(), size, direct);
        Engine engine(*fs);
        EXPECT_OK(engine.Run(files.job));
        EXPECT_TRUE(files.Result() == files.job.expected);
        EXPECT_EQ(files.job.stats.bytes_read, size);
        EXPECT_EQ(files.job.stats.bytes_written, size);
      }
    }
  }
}

TEST(Pipeline, MovesWholeBlocks) {
  TempDir dir;
  const auto fs = NewPosixFileSystem();
  Files files(*fs, dir.path(), 3 * kBlockBytes + 12345);
  files.job.piece_bytes = kBlockBytes;
  files.job.read_bytes = kMaxReadBytes;
  Engine engine(*fs);
  EXPECT_OK(engine.Run(files.job));
  EXPECT_TRUE(files.Result() == files.job.expected);
}

TEST(Pipeline, SurvivesShortInterruptedAndReorderedTransfers) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    SimStorage fs(
        {.seed = seed, .percent_short = 50, .percent_interrupted = 30});
    Files files(fs, "/", 150'001,
                seed % 2 == 0 ? DirectMode::kOn : DirectMode::kOff);
    Engine engine(fs, kMinBlocks + seed % 5,
                  static_cast<uint32_t>(1 + seed % 9));
    files.job.blocks_per_batch = 1 + seed % 3;
    EXPECT_OK(engine.Run(files.job));
    EXPECT_TRUE(files.Result() == files.job.expected);
  }
}

// Which end the message blames.
ErrorSide SideByMessage(const absl::Status& status) {
  return absl::StartsWith(status.message(), "read source")
             ? ErrorSide::kSource
             : ErrorSide::kDestination;
}

// Every request of the copy fails once with each errno.
TEST(Pipeline, ReportsEveryErrorWhereverItHappensAndWorksAgain) {
  const std::vector<std::pair<int, absl::StatusCode>> errors = {
      {EINTR, absl::StatusCode::kOk},
      {EAGAIN, absl::StatusCode::kOk},
      {ENOSPC, absl::StatusCode::kResourceExhausted},
      {EIO, absl::StatusCode::kUnavailable},
      {EACCES, absl::StatusCode::kPermissionDenied}};
  constexpr uint64_t kSize = 100'000;
  constexpr uint64_t kNumRequests = 25 + 7;  // reads of 5000 in pieces, writes
  for (const auto& [error, code] : errors) {
    for (uint64_t n = 0; n < kNumRequests; ++n) {
      SCOPED_TRACE(absl::StrCat("errno ", error, " at request ", n));
      SimStorage fs;
      Files files(fs, "/", kSize);
      Engine engine(fs);
      fs.FailOperation(n, error);
      const uint64_t before = fs.num_operations();
      const absl::Status status = engine.Run(files.job);
      EXPECT_EQ(status.code(), code) << status;
      if (!status.ok()) {
        EXPECT_THAT(std::string(status.message()),
                    AllOf(HasSubstr(" ["), HasSubstr("+")));
        EXPECT_EQ(SideOf(status), SideByMessage(status)) << status;
        files.job.at = files.job.num_filled = 0;
        EXPECT_OK(engine.Run(files.job));
      } else {
        EXPECT_EQ(fs.num_operations() - before, kNumRequests + 1);
      }
      EXPECT_TRUE(files.Result() == files.job.expected);
    }
  }
}

TEST(Pipeline, GivesUpOnADiskThatIsAlwaysInterrupted) {
  SimStorage fs({.percent_interrupted = 100});
  Files files(fs, "/", 10'000);
  Engine engine(fs);
  const absl::Status status = engine.Run(files.job);
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("source")));
  EXPECT_EQ(SideOf(status), ErrorSide::kSource);
}

TEST(Pipeline, ReportsAFullDisk) {
  SimStorage fs({.capacity_bytes = 150'000});
  Files files(fs, "/", 100'000);
  Engine engine(fs);
  EXPECT_THAT(
      engine.Run(files.job),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("target [")));
}

TEST(Pipeline, NamesThePlaceWhereAFileEndsTooEarly) {
  for (const DirectMode direct : {DirectMode::kOn, DirectMode::kOff}) {
    for (const uint64_t size : {uint64_t{50'000}, uint64_t{49'152}}) {
      SimStorage fs;
      Files files(fs, "/", size, direct);
      files.job.src.size += 1000;  // it has shrunk since it was opened
      files.job.size += 1000;
      files.job.expected += std::string(1000, '\0');
      Engine engine(fs);
      EXPECT_THAT(engine.Run(files.job),
                  StatusIs(absl::StatusCode::kDataLoss,
                           HasSubstr(absl::StrCat("file ends at ", size))));
    }
  }
}

TEST(Pipeline, RefusesAReadBehindTheEnd) {
  SimStorage fs;
  Files files(fs, "/", 50'000);
  files.job.size += 1;
  Engine engine(fs);
  const absl::Status status = engine.Run(files.job);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                               AllOf(HasSubstr("read source ["),
                                     HasSubstr("file ends at 50000"))));
  EXPECT_EQ(SideOf(status), ErrorSide::kSource);
  EXPECT_EQ(PlaceOf(status).file, "source");
  EXPECT_NE(PlaceOf(status).offset, "");
}

TEST(Pipeline, StopsInTheMiddle) {
  SimStorage fs;
  Files files(fs, "/", 500'000);
  files.job.stop_after_batches = 5;
  Engine engine(fs);
  EXPECT_THAT(engine.Run(files.job), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_LT(files.job.num_filled, files.job.size);
  // The target is correct up to where it was written.
  EXPECT_LT(files.job.stats.bytes_written, files.job.size);
}

TEST(Pipeline, DoesNothingWhenStoppedBefore) {
  SimStorage fs;
  Files files(fs, "/", 50'000);
  files.job.stop.request_stop();
  Engine engine(fs);
  EXPECT_THAT(engine.Run(files.job), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(files.job.at, 0u);
}

TEST(Pipeline, ReturnsTheErrorOfACallback) {
  SimStorage fs;
  Files files(fs, "/", 50'000);
  files.job.on_read_status = absl::DataLossError("bad bytes");
  Engine engine(fs);
  EXPECT_THAT(engine.Run(files.job),
              StatusIs(absl::StatusCode::kDataLoss, "bad bytes"));
}

TEST(Pipeline, DiesWithTheMachineWithoutHanging) {
  for (uint64_t n = 0; n < 8; ++n) {
    SimStorage fs;
    auto files = std::make_unique<Files>(fs, "/", 100'000);
    Engine engine(fs);
    fs.CrashAfter(n);
    EXPECT_THAT(engine.Run(files->job),
                n < 7 ? StatusIs(absl::StatusCode::kUnavailable)
                      : StatusIs(absl::StatusCode::kOk));
    fs.Reboot();
    // The handles died with the machine.
    EXPECT_OK(WriteFile(fs, "/again", "x"));
    EXPECT_OK(fs.SyncDirectory("/"));
    files->job.src.handle = fs.OpenForRead("/again", DirectMode::kOff, true)
                                .value_or(File())
                                .handle;
    files->job.dst.handle = fs.OpenForRead("/again", DirectMode::kOff, true)
                                .value_or(File())
                                .handle;
  }
}

TEST(Pipeline, PadsTheLastBlockOfADirectFileWithZeros) {
  SimStorage fs;
  Files files(fs, "/", 20'000);
  Engine engine(fs);
  {
    // The previous contents of the memory must not reach the file.
    std::vector<Block> all;
    while (Block block = engine.pool.TryAcquire()) {
      std::fill_n(block.data(), Block::size(), uint8_t{0xee});
      all.push_back(std::move(block));
    }
  }
  EXPECT_OK(engine.Run(files.job));
  ASSERT_OK_AND_ASSIGN(const std::string padded,
                       ReadFile(fs, files.dst, UINT64_MAX, true));
  EXPECT_TRUE(padded == files.job.expected + std::string(480, '\0'));
}

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
  EXPECT_EQ(queue.reads_max(), 4u);  // half of the pool
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

// A wait for `next` waits for copies and for nothing else.
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
      // Those before it are all with the disk, or done.
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

// Batches with and without reads, blocks to write, or anything at all, in
// pools and queues of every size.
TEST(Pipeline, NeverWaitsForItself) {
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

TEST(Pipeline, ReadsWithTheWholePoolWhenBatchesWantNoBlocks) {
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

// Reaps all that is in flight at once, as a fast disk lets it come.
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

TEST(Pipeline, TakesBatchesWithNothingInThem) {
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
}  // namespace dcp
