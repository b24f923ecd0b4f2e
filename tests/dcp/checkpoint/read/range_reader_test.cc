// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/read/range_reader.h"

#include <cstdint>
#include <string>
#include <vector>

#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/io/object/object_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sim_object_server.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::SimObjectServer;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;

std::string Pattern(uint64_t size, uint32_t step) {
  std::string bytes(size, '\0');
  uint32_t value = step;
  for (char& byte : bytes) byte = static_cast<char>((value += step) >> 7);
  return bytes;
}

TEST(RangeReader, ReadsEachRangeInOrder) {
  SimStorage fs({.percent_short = 20, .percent_interrupted = 20});
  const std::vector<std::string> bytes = {Pattern(3 * kBlockBytes, 77),
                                          Pattern(1000, 3)};
  ASSERT_OK(WriteFile(fs, "/a", bytes[0]));
  ASSERT_OK(WriteFile(fs, "/b", bytes[1]));
  SourceFiles files(fs, "/", {"a", "b"}, DirectMode::kAuto,
                    /*follow_symlinks=*/false);
  const std::vector<FileRange> ranges = {{0, 5, 2 * kBlockBytes + 1},
                                         {0, 3 * kBlockBytes - 1, 1},
                                         {0, 9, 0},
                                         {1, 0, 1000},
                                         {0, 0, 10}};
  std::vector<std::string> seen(ranges.size());
  size_t last = 0;
  TransferStats stats;
  ASSERT_OK(ReadRanges(fs, files, ranges,
                       {.memory_bytes = kMinMemoryBytes, .stats = &stats},
                       [&](size_t i, uint64_t begin, ByteSpan data) {
                         EXPECT_GE(i, last);
                         last = i;
                         EXPECT_EQ(begin, seen[i].size());
                         seen[i] += std::string(AsText(data));
                         return absl::OkStatus();
                       }));
  for (size_t i = 0; i < ranges.size(); ++i) {
    EXPECT_TRUE(seen[i] == bytes[ranges[i].file].substr(ranges[i].offset,
                                                        ranges[i].length))
        << i;
  }
  EXPECT_GE(stats.bytes_read.load(), 2 * kBlockBytes + 1012);
}

// How many requests a 20 MiB object takes; checks the bytes.
uint64_t RequestsForObject(uint64_t memory_bytes) {
  const std::string bytes = Pattern(uint64_t{20} << 20, 77);
  SimObjectServer server;
  server.PutBytes("a", bytes);
  ObjectFileSystem fs(server.Opener());
  SourceFiles files(fs, "s3://bucket", {"a"}, DirectMode::kAuto,
                    /*follow_symlinks=*/false);
  EXPECT_OK(files.Get(0).status());
  const uint64_t num_before = server.num_calls();
  const std::vector<FileRange> ranges = {{0, 0, bytes.size()}};
  std::string seen;
  EXPECT_OK(ReadRanges(fs, files, ranges, {.memory_bytes = memory_bytes},
                       [&](size_t, uint64_t, ByteSpan data) {
                         seen += std::string(AsText(data));
                         return absl::OkStatus();
                       }));
  EXPECT_TRUE(seen == bytes);
  return server.num_calls() - num_before;
}

TEST(RangeReader, ReadsObjectsInTheStoresBlocks) {
  EXPECT_EQ(RequestsForObject(kDefaultMemoryBytes), 3u);
  // Where the memory is too small for them, in smaller ones.
  EXPECT_EQ(RequestsForObject(kMinMemoryBytes), 6u);
}

TEST(RangeReader, EndsWithTheFirstErrorOfTheVisitor) {
  SimStorage fs;
  ASSERT_OK(WriteFile(fs, "/a", "abc"));
  SourceFiles files(fs, "/", {"a"}, DirectMode::kAuto,
                    /*follow_symlinks=*/false);
  int num_calls = 0;
  const auto visit = [&](size_t, uint64_t, ByteSpan) {
    ++num_calls;
    return absl::DataLossError("seen enough");
  };
  const std::vector<FileRange> ranges = {{0, 0, 1}, {0, 2, 1}};
  EXPECT_THAT(
      ReadRanges(fs, files, ranges, {.memory_bytes = kMinMemoryBytes}, visit),
      StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(num_calls, 1);
}

}  // namespace
}  // namespace dcp
