// SPDX-License-Identifier: Apache-2.0
// Shared by the pipeline tests: files with random bytes, their copy by
// RunPipeline, with checks of each callback's input, and the queue and pool
// that it runs on. One thread.
#ifndef TESTS_DCP_IO_PIPELINE_COPY_H_
#define TESTS_DCP_IO_PIPELINE_COPY_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/io/block_pool.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp::testing {

inline constexpr uint32_t kDepth = 8;

inline std::string RandomBytes(uint64_t size) {
  std::mt19937_64 random(size);
  std::string bytes(AlignUp(size, 8), '\0');
  for (uint64_t at = 0; at < bytes.size(); at += 8) {
    const uint64_t word = random();
    std::memcpy(&bytes[at], &word, 8);
  }
  bytes.resize(size);
  return bytes;
}

inline std::string DescribeAs(const char* name) { return name; }

// Copies `src` to `dst`, `piece_bytes` in each block, by reads of at most
// `read_bytes`, which need no alignment.
struct Copy {
  File src;
  File dst;
  uint64_t size = 0;
  uint64_t piece_bytes = 16384;
  uint64_t read_bytes = 5000;
  uint64_t blocks_per_batch = 2;
  std::string expected;  // the source's bytes, to compare with the reads

  uint64_t at = 0;  // how far `Next` has come
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

inline bool Copy::Next(Batch& batch) {
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
    // In order: each batch's first byte follows the previous batch's last, and
    // all bytes are there.
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

inline void Copy::PlanReads(Batch& batch, uint64_t begin, uint64_t end) {
  while (begin < end) {
    const uint64_t length = std::min(read_bytes, end - begin);
    batch.reads.push_back({.file = src, .offset = begin, .length = length});
    begin += length;
  }
}

inline absl::Status Copy::Place(Batch& batch, uint64_t begin, size_t index,
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

inline absl::Status Copy::Run(IoQueue& queue, BlockPool& pool) {
  const auto next = [this](Batch& batch) -> absl::StatusOr<bool> {
    return Next(batch);
  };
  const auto describe = [this](FileHandle handle) -> std::string {
    return DescribeAs(handle == src.handle ? "source" : "target");
  };
  const absl::Status status = RunPipeline(queue, pool, blocks_per_batch, next,
                                          describe, stop.get_token(), stats);
  // Whatever happened, no block is held back.
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

  // The target's contents, cut to the proper size.
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

}  // namespace dcp::testing

#endif  // TESTS_DCP_IO_PIPELINE_COPY_H_
