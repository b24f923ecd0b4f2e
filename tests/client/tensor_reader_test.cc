// SPDX-License-Identifier: Apache-2.0

#include "client/tensor_reader.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "client/checkpoint_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/cutting_proxy.h"
#include "tests/client/fake_server.h"
#include "tests/testing/denied_calls.h"
#include "tests/testing/status_matchers.h"

namespace dcp::client {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::WithoutNewThreads;
using ::testing::HasSubstr;
namespace v1 = tessera::v1;

using ::dcp::testing::kDataLoss;
// Equals the reader's own constant: a stream has at least this many bytes.
constexpr uint64_t kRangeBytes = uint64_t{32} << 20;

class TensorReaderTest : public ::testing::Test {
 protected:
  // Reads all parts into memory_, one after the other.
  absl::StatusOr<ReadTensorsStats> Read(const std::string& address,
                                        const ReadTensorsOptions& options) {
    uint64_t num_bytes = 0;
    for (uint64_t bytes : server_.checkpoints.part_bytes) num_bytes += bytes;
    memory_.assign(num_bytes, 0);
    CheckpointClient client(server_.Connect(address));
    uint64_t begin = 0;
    return client.ReadTensors(
        v1::ReadTensorsRequest(),
        [&](size_t,
            const TensorPart& part) -> absl::StatusOr<std::span<uint8_t>> {
          begin += part.num_bytes();
          return std::span(memory_).subspan(begin - part.num_bytes(),
                                            part.num_bytes());
        },
        options);
  }

  // The first wrong byte, or the byte count if all are right.
  uint64_t FirstWrong() const {
    for (uint64_t i = 0; i < memory_.size(); ++i) {
      if (memory_[i] != FakeByte(i)) return i;
    }
    return memory_.size();
  }

  FakeServer server_;
  std::vector<uint8_t> memory_;
};

TEST_F(TensorReaderTest, StreamsShareLargeReads) {
  server_.checkpoints.part_bytes = {3 * kRangeBytes / 2, 1, kRangeBytes / 2};
  server_.checkpoints.chunk_bytes = 1 << 20;
  ASSERT_OK_AND_ASSIGN(const ReadTensorsStats stats,
                       Read(server_.address(), {.num_streams = 4}));
  EXPECT_EQ(stats.num_bytes, memory_.size());
  EXPECT_EQ(stats.num_resumed, 0);
  EXPECT_EQ(server_.checkpoints.num_calls, 2);
  EXPECT_EQ(FirstWrong(), memory_.size());
}

TEST_F(TensorReaderTest, ReadsOneStreamAtATimeWithoutThreads) {
  server_.checkpoints.part_bytes = {3 * kRangeBytes};
  server_.checkpoints.chunk_bytes = 1 << 20;
  WithoutNewThreads([&] {
    ASSERT_OK_AND_ASSIGN(const ReadTensorsStats stats,
                         Read(server_.address(), {.num_streams = 3}));
    EXPECT_EQ(stats.num_bytes, memory_.size());
  });
  EXPECT_EQ(server_.checkpoints.num_calls, 3);
  EXPECT_EQ(FirstWrong(), memory_.size());
}

TEST_F(TensorReaderTest, ResumesBrokenStreams) {
  server_.checkpoints.part_bytes = {kRangeBytes, kRangeBytes};
  server_.checkpoints.chunk_bytes = 1 << 18;
  constexpr int kCuts = 5;
  CuttingProxy proxy(server_.address(), kCuts, kRangeBytes / 8);
  ASSERT_OK_AND_ASSIGN(const ReadTensorsStats stats,
                       Read(proxy.address(), {.num_streams = 2}));
  EXPECT_EQ(proxy.num_cuts_left(), 0);
  EXPECT_GE(stats.num_resumed, kCuts);
  EXPECT_EQ(FirstWrong(), memory_.size());
}

TEST_F(TensorReaderTest, DoesNotMixAReplacedCheckpoint) {
  server_.checkpoints.part_bytes = {kRangeBytes / 2};
  server_.checkpoints.chunk_bytes = 1 << 18;
  // The server also owns it, and may outlive the test's body.
  const auto num_headers = std::make_shared<std::atomic<int>>(0);
  server_.checkpoints.set_tamper([num_headers](v1::ReadTensorsResponse& m) {
    if (m.has_header() && ++*num_headers > 1) {
      m.mutable_header()->set_etag("e2");
    }
    return true;
  });
  CuttingProxy proxy(server_.address(), 1, kRangeBytes / 8);
  EXPECT_THAT(Read(proxy.address(), {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("ReadTensors: the checkpoint was replaced")));
}

TEST_F(TensorReaderTest, ReadsOnlyTheRequestedEtag) {
  server_.checkpoints.part_bytes = {1000, 500};
  ReadTensorsOptions options;
  options.etag = "e1";
  std::atomic<uint64_t> bytes_arrived = 0;
  options.bytes_arrived = &bytes_arrived;
  ASSERT_OK(Read(server_.address(), options));
  EXPECT_EQ(bytes_arrived, 1500);
  EXPECT_EQ(FirstWrong(), memory_.size());
  options.etag = "e0";
  EXPECT_THAT(Read(server_.address(), options),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  // A server that ignores the requested etag.
  options.etag = "e1";
  server_.checkpoints.set_tamper([](v1::ReadTensorsResponse& m) {
    if (m.has_header()) m.mutable_header()->set_etag("e2");
    return true;
  });
  EXPECT_THAT(Read(server_.address(), options),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("the checkpoint was replaced")));
  EXPECT_EQ(bytes_arrived, 1500);
}

TEST_F(TensorReaderTest, DetectsWrongAnswers) {
  struct Case {
    const char* name;
    bool (*tamper)(v1::ReadTensorsResponse& message);
    const char* message;
  };
  const Case cases[] = {
      {"flips a bit",
       [](v1::ReadTensorsResponse& m) {
         if (m.chunk().offset() == 300)
           (*m.mutable_chunk()->mutable_data())[7] ^= 1;
         return true;
       },
       "t0, at byte 300: the checksum of 100 bytes is wrong"},
      {"wrong checksum",
       [](v1::ReadTensorsResponse& m) {
         if (m.has_chunk()) m.mutable_chunk()->set_crc32c(0);
         return true;
       },
       "at byte 0: the checksum"},
      {"skips",
       [](v1::ReadTensorsResponse& m) {
         if (m.chunk().offset() == 300) m.mutable_chunk()->set_offset(400);
         return true;
       },
       "out of order"},
      {"ends early",
       [](v1::ReadTensorsResponse& m) { return m.chunk().offset() < 500; },
       "the stream ended at byte 500 of 1000"},
      {"no header",
       [](v1::ReadTensorsResponse& m) {
         if (m.has_header()) m.clear_header();
         return true;
       },
       "neither header nor payload"},
      {"nothing", [](v1::ReadTensorsResponse&) { return false; },
       "ended at byte 0 of its header"},
      {"contradicts",
       [](v1::ReadTensorsResponse& m) {
         if (m.has_header()) m.mutable_header()->set_num_bytes(999);
         return true;
       },
       "exceed its 999 bytes"},
  };
  server_.checkpoints.part_bytes = {1000};
  server_.checkpoints.chunk_bytes = 100;
  for (const Case& c : cases) {
    server_.checkpoints.set_tamper(c.tamper);
    server_.checkpoints.num_calls = 0;
    EXPECT_THAT(Read(server_.address(), {}),
                StatusIs(kDataLoss, HasSubstr(c.message)))
        << c.name;
    EXPECT_EQ(server_.checkpoints.num_calls, 1) << c.name;
  }
  server_.checkpoints.set_tamper(nullptr);
  EXPECT_OK(Read(server_.address(), {}));
  EXPECT_EQ(FirstWrong(), 1000);
}

TEST_F(TensorReaderTest, OneFailedStreamEndsTheOthers) {
  server_.checkpoints.part_bytes = {2 * kRangeBytes};
  server_.checkpoints.chunk_bytes = 1 << 20;
  server_.checkpoints.set_tamper([](v1::ReadTensorsResponse& m) {
    if (m.chunk().offset() == kRangeBytes) m.mutable_chunk()->set_crc32c(0);
    return true;
  });
  EXPECT_THAT(Read(server_.address(), {.num_streams = 4}),
              StatusIs(kDataLoss, HasSubstr("checksum")));
}

TEST_F(TensorReaderTest, StopEndsTheRead) {
  server_.checkpoints.part_bytes = {kRangeBytes / 8};
  std::stop_source source;
  server_.checkpoints.set_tamper([source](v1::ReadTensorsResponse& m) mutable {
    if (m.has_chunk()) source.request_stop();
    return true;
  });
  EXPECT_THAT(Read(server_.address(), {.call = {.stop = source.get_token()}}),
              StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(TensorReaderTest, DeadlineEndsTheRead) {
  server_.checkpoints.part_bytes = {1};
  server_.checkpoints.num_failures = 1 << 30;
  EXPECT_THAT(
      Read(server_.address(), {.call = {.timeout = absl::Milliseconds(20)}}),
      ::testing::Not(testing::IsOk()));
}

}  // namespace
}  // namespace dcp::client
