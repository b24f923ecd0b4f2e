// SPDX-License-Identifier: Apache-2.0

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/convert/convert_fixtures.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::ExpectSame;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::dcp::testing::WriteSmallSafetensors;
using ::testing::HasSubstr;

ConvertOptions ToDirectory() {
  ConvertOptions options;
  options.to = Format::kSafetensors;
  return options;
}

// The bytes that a stream received; it refuses those after `most` bytes.
struct Received {
  std::string bytes;
  size_t most = SIZE_MAX;

  ByteStream stream() {
    return [this](ByteSpan more) -> absl::Status {
      if (bytes.size() + more.size() > most) {
        return absl::AbortedError("nobody reads");
      }
      bytes.append(reinterpret_cast<const char*>(more.data()), more.size());
      return absl::OkStatus();
    };
  }
};

TEST(ConvertStream, StreamsWhatItWouldWrite) {
  SimStorage fs;
  std::vector<float> values(3 << 20);  // some blocks
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i);
  }
  ASSERT_OK(WriteFile(
      fs, "/a.safetensors",
      testing::SafetensorsBytes({{"w",
                                  DType::kFloat32,
                                  {static_cast<int64_t>(values.size())},
                                  testing::BytesOf<float>(values)},
                                 {"x", DType::kUInt8, {3}, "abc"}})));
  for (const Format to : {Format::kSafetensors, Format::kTorch}) {
    SCOPED_TRACE(FormatName(to));
    Received received;
    TransferStats stats;
    ConvertOptions options;
    if (to == Format::kTorch) options.to = to;
    options.stream = received.stream();
    options.stats = &stats;
    options.num_lanes = 2;
    options.memory_bytes = kMinMemoryBytes;
    const auto plan =
        ConvertCheckpoint(fs, "/a.safetensors", "-", std::move(options));
    ASSERT_OK(plan);
    EXPECT_EQ(plan->to, to);
    EXPECT_EQ(received.bytes.size(), plan->bytes_to_write);
    EXPECT_EQ(stats.bytes_written, plan->bytes_to_write);
    const std::string copy = absl::StrCat("/copy-", FormatName(to));
    ASSERT_OK(WriteFile(fs, copy, received.bytes));
    ExpectSame(fs, "/a.safetensors", copy);
    EXPECT_THAT(fs.Stat("-"), StatusIs(absl::StatusCode::kNotFound));
  }
}

TEST(ConvertStream, AStreamOfADamagedSourceIsNotWhole) {
  SimStorage fs;
  WriteSmallSafetensors(fs, "/a.safetensors", "w", {});
  ASSERT_OK(ConvertCheckpoint(fs, "/a.safetensors", "/d", ToDirectory()));
  const auto sound = ReadFile(fs, "/d/model.safetensors", 1 << 20, false);
  ASSERT_OK(sound);
  std::string damaged = *sound;
  damaged.back() ^= 1;
  ASSERT_OK(fs.Remove("/d/model.safetensors"));
  ASSERT_OK(WriteFile(fs, "/d/model.safetensors", damaged));
  Received received;
  ConvertOptions options;
  options.stream = received.stream();
  EXPECT_THAT(ConvertCheckpoint(fs, "/d", "-", std::move(options)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("w")));
  ASSERT_OK(WriteFile(fs, "/copy", received.bytes));
  EXPECT_THAT(Checkpoint::Open(fs, "/copy", {}),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(ConvertStream, AStreamThatNobodyReadsEnds) {
  SimStorage fs;
  WriteSmallSafetensors(fs, "/a.safetensors", "w", {});
  Received received{.bytes = "", .most = 10};
  ConvertOptions options;
  options.stream = received.stream();
  const auto plan =
      ConvertCheckpoint(fs, "/a.safetensors", "-", std::move(options));
  EXPECT_THAT(plan, StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(StatusSide(plan.status()), ErrorSide::kDestination);
}

TEST(ConvertStream, StreamsNoDirectory) {
  SimStorage fs;
  WriteSmallSafetensors(fs, "/a.safetensors", "w", {});
  Received received;
  ConvertOptions dcp;
  dcp.to = Format::kDcp;
  dcp.stream = received.stream();
  EXPECT_THAT(ConvertCheckpoint(fs, "/a.safetensors", "-", std::move(dcp)),
              StatusIs(absl::StatusCode::kInvalidArgument));
  ConvertOptions shards;
  shards.max_shard_bytes = 1;
  shards.stream = received.stream();
  EXPECT_THAT(ConvertCheckpoint(fs, "/a.safetensors", "-", std::move(shards)),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_TRUE(received.bytes.empty());
}

}  // namespace
}  // namespace dcp
