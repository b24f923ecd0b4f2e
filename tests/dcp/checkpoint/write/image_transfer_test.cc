// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/write/image_transfer.h"

#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/destination/plan_destination.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::MemorySource;
using ::dcp::testing::RandomBytes;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;

// An output with `num_files` files, each "head" + payload + the payload's
// CRC-32 in decimal, padded to 10 characters.
struct Sample {
  Sample(int num_files, uint64_t payload_bytes) {
    output.needs_crcs = true;
    output.needs_digests = true;
    for (int i = 0; i < num_files; ++i) {
      payloads.push_back(
          RandomBytes(static_cast<uint64_t>(i) + 1, payload_bytes));
      sources.push_back(std::make_unique<MemorySource>(payloads.back()));
      FileLayout layout(absl::StrCat("file", i));
      layout.Append(4, payload_bytes, static_cast<uint32_t>(i));
      layout.Append(10, 0, 0);
      output.payloads.push_back(
          {.source = sources.back().get(),
           .box = WholeBox(Dims{static_cast<int64_t>(payload_bytes)}),
           .dtype = DType::kUInt8});
      output.files.push_back(
          {.layout = std::move(layout),
           .literal = [](size_t part, absl::Span<const uint32_t> crcs) {
             return part == 0 ? std::string("head") : Crc(crcs[0]);
           }});
    }
  }

  static std::string Crc(uint32_t crc) {
    std::string text = absl::StrCat(crc);
    text.resize(10, ' ');
    return text;
  }

  Output output;
  std::vector<std::string> payloads;
  std::vector<std::unique_ptr<MemorySource>> sources;
};

TEST(ImageTransfer, WritesLiteralsPayloadsAndChecksums) {
  for (const uint32_t num_lanes : {1u, 2u}) {
    SimStorage fs({.percent_short = 20, .percent_interrupted = 20});
    Sample sample(5, kBlockBytes / 2 + 123);
    ASSERT_OK_AND_ASSIGN(
        const auto destination,
        PlanDestination(fs, "/c", Destination::Kind::kDcpDirectory, false));
    ASSERT_OK(destination->Begin());
    TransferStats stats;
    ASSERT_OK_AND_ASSIGN(
        const std::vector<ChunkDigest> digests,
        TransferImages(fs, sample.output, *destination,
                       {.num_lanes = num_lanes,
                        .memory_bytes = num_lanes * kMinMemoryBytes},
                       stats));
    EXPECT_EQ(digests.size(), 5u);
    for (const ChunkDigest& digest : digests) {
      EXPECT_EQ(digest.offset, 4u);
      EXPECT_EQ(digest.length, kBlockBytes / 2 + 123);
    }
    for (size_t i = 0; i < 5; ++i) {
      const std::string& payload = sample.payloads[i];
      const std::string expected = absl::StrCat(
          "head", payload, Sample::Crc(ExtendCrc32(0, AsBytes(payload))));
      const auto bytes =
          ReadFile(fs, absl::StrCat("/c/file", i), UINT64_MAX, true);
      ASSERT_OK(bytes);
      EXPECT_TRUE(*bytes == expected);
    }
    EXPECT_EQ(fs.num_open_files(), 1u);  // the destination's lock
  }
}

TEST(ImageTransfer, ClosesItsFilesWhenStopped) {
  SimStorage fs;
  Sample sample(3, 1000);
  std::stop_source stop;
  stop.request_stop();
  {
    ASSERT_OK_AND_ASSIGN(
        const auto destination,
        PlanDestination(fs, "/c", Destination::Kind::kDcpDirectory, false));
    ASSERT_OK(destination->Begin());
    TransferStats stats;
    EXPECT_THAT(TransferImages(fs, sample.output, *destination,
                               {.num_lanes = 1,
                                .memory_bytes = kMinMemoryBytes,
                                .stop = stop.get_token()},
                               stats),
                StatusIs(absl::StatusCode::kCancelled));
  }
  EXPECT_EQ(fs.num_open_files(), 0u);
  EXPECT_THAT(fs.Stat("/c"), StatusIs(absl::StatusCode::kNotFound));
}

TEST(ImageTransfer, OneFileIsWorthOneLane) {
  EXPECT_EQ(UsefulLanes(Sample(1, 10).output), 1u);
  EXPECT_LE(UsefulLanes(Sample(9, 10).output), 2u);
}

}  // namespace
}  // namespace dcp
