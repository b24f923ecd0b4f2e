// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/pipeline.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/error_place.h"
#include "dcp/base/error_side.h"
#include "dcp/base/limits.h"
#include "dcp/io/block_pool.h"
#include "dcp/io/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/io/pipeline_copy.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Pipeline, CopiesEverySizeThroughEveryQueue) {
  for (const QueueKind kind : {QueueKind::kUring, QueueKind::kBlocking}) {
    for (const DirectMode direct : {DirectMode::kOn, DirectMode::kOff}) {
      for (const uint64_t size :
           {uint64_t{1}, uint64_t{4096}, uint64_t{4097}, uint64_t{300'001}}) {
        TempDir dir;
        const auto fs = NewPosixFileSystem(kind);
        Files files(*fs, dir.path(), size, direct);
        files.job.piece_bytes = kMaxDirectAlignment;
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

// The disk refuses other requests. The longest reads still fit in a block,
// wherever they begin.
TEST(Pipeline, AlignsRequestsAsTheFileSystemAsks) {
  for (const uint64_t alignment : {uint64_t{512}, kMaxDirectAlignment}) {
    SCOPED_TRACE(alignment);
    SimStorage fs({.percent_short = 50, .alignment = alignment});
    Files files(fs, "/", 3 * kBlockBytes + 12345);
    files.job.piece_bytes = kBlockBytes;
    files.job.read_bytes = kMaxReadBytes - 1;
    Engine engine(fs);
    EXPECT_OK(engine.Run(files.job));
    EXPECT_TRUE(files.Result() == files.job.expected);
  }
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

// The end of the copy that the message blames.
ErrorSide SideByMessage(const absl::Status& status) {
  return absl::StartsWith(status.message(), "read source")
             ? ErrorSide::kSource
             : ErrorSide::kDestination;
}

// Every request in the copy fails once with each errno.
TEST(Pipeline, ReportsEveryErrorAndThenWorksAgain) {
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
        EXPECT_EQ(StatusSide(status), SideByMessage(status)) << status;
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
  EXPECT_EQ(StatusSide(status), ErrorSide::kSource);
}

TEST(Pipeline, ReportsAFullDisk) {
  SimStorage fs({.capacity_bytes = 150'000});
  Files files(fs, "/", 100'000);
  Engine engine(fs);
  EXPECT_THAT(
      engine.Run(files.job),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("target [")));
}

TEST(Pipeline, NamesTheOffsetOfAPrematureEnd) {
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

TEST(Pipeline, RefusesAReadBeyondTheEnd) {
  SimStorage fs;
  Files files(fs, "/", 50'000);
  files.job.size += 1;
  Engine engine(fs);
  const absl::Status status = engine.Run(files.job);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                               AllOf(HasSubstr("read source ["),
                                     HasSubstr("file ends at 50000"))));
  EXPECT_EQ(StatusSide(status), ErrorSide::kSource);
  EXPECT_EQ(StatusPlace(status).file, "source");
  EXPECT_NE(StatusPlace(status).offset, "");
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

TEST(Pipeline, EndsWhenTheMachineDies) {
  for (uint64_t n = 0; n < 8; ++n) {
    SimStorage fs;
    auto files = std::make_unique<Files>(fs, "/", 100'000);
    Engine engine(fs);
    fs.CrashAfter(n);
    EXPECT_THAT(engine.Run(files->job),
                n < 7 ? StatusIs(absl::StatusCode::kUnavailable)
                      : StatusIs(absl::StatusCode::kOk));
    fs.Reboot();
    // The handles were lost with the machine.
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
    // The memory's previous contents must not reach the file.
    std::vector<Block> all;
    while (Block block = engine.pool.TryAcquire()) {
      std::fill_n(block.data(), block.size(), uint8_t{0xee});
      all.push_back(std::move(block));
    }
  }
  EXPECT_OK(engine.Run(files.job));
  ASSERT_OK_AND_ASSIGN(const std::string padded,
                       ReadFile(fs, files.dst, UINT64_MAX, true));
  EXPECT_TRUE(padded == files.job.expected + std::string(480, '\0'));
}

}  // namespace
}  // namespace dcp::testing
