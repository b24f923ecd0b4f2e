// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/ranks/rank_pull.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "dcp/base/bytes.h"
#include "fsdp/checkpoint/ranks/process_group_coordinator.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"

namespace fsdp {
namespace {

using ::dcp::testing::StatusIs;
using ::fsdp::testing::RunRanks;

constexpr uint64_t kWindowBytes = 100;

uint8_t ByteAt(uint64_t offset) {
  return static_cast<uint8_t>(offset * offset % 251);
}

// The other end, which works until it has sent `num_well` bytes.
absl::Status Serve(ProcessGroupCoordinator& ranks, uint64_t num_bytes,
                   uint64_t num_well = UINT64_MAX) {
  uint64_t offset = 0;
  return ServeRankPull(ranks, num_bytes, kWindowBytes,
                       [&](dcp::MutableByteSpan dst) -> absl::Status {
                         EXPECT_LE(dst.size(), kWindowBytes);
                         if (offset >= num_well) {
                           return absl::DataLossError("no memory");
                         }
                         for (uint8_t& byte : dst) byte = ByteAt(offset++);
                         return absl::OkStatus();
                       });
}

TEST(RankPull, ArrivesWholeAndInOrder) {
  RunRanks(2, [] {
    init_process_group();
    ASSERT_OK_AND_ASSIGN(const auto ranks,
                         ProcessGroupCoordinator::Make(nullptr, "test"));
    for (const uint64_t length : {0, 1, 99, 100, 101, 200, 1234}) {
      if (ranks->rank() == 1) {
        EXPECT_OK(Serve(*ranks, length));
        continue;
      }
      RankPull pull(*ranks, 1, length, kWindowBytes);
      std::vector<uint8_t> received(length);
      for (uint64_t i = 0; i < length; i += 37) {
        const uint64_t size = std::min<uint64_t>(37, length - i);
        ASSERT_OK(pull.Read(dcp::MutableByteSpan(received.data() + i, size)));
      }
      pull.Stop();
      for (uint64_t i = 0; i < length; ++i) {
        ASSERT_EQ(received[i], ByteAt(i)) << i << " of " << length;
      }
    }
  });
}

TEST(RankPull, OneEndsFailureStopsTheOtherCleanly) {
  RunRanks(2, [] {
    init_process_group();
    ASSERT_OK_AND_ASSIGN(const auto ranks,
                         ProcessGroupCoordinator::Make(nullptr, "test"));
    std::vector<uint8_t> received(1000);
    // Rank 0 stops after so many bytes.
    for (const uint64_t num_read : {0, 50, 100, 650}) {
      if (ranks->rank() == 1) {
        EXPECT_THAT(Serve(*ranks, 1000), StatusIs(absl::StatusCode::kAborted));
        continue;
      }
      RankPull pull(*ranks, 1, 1000, kWindowBytes);
      ASSERT_OK(pull.Read(dcp::MutableByteSpan(received.data(), num_read)));
      pull.Stop();
    }
    // Rank 1 fails after so many.
    for (const uint64_t num_well : {0, 100, 900}) {
      if (ranks->rank() == 1) {
        EXPECT_THAT(Serve(*ranks, 1000, num_well),
                    StatusIs(absl::StatusCode::kDataLoss));
        continue;
      }
      RankPull pull(*ranks, 1, 1000, kWindowBytes);
      EXPECT_THAT(pull.Read(dcp::MutableByteSpan(received)),
                  StatusIs(absl::StatusCode::kAborted));
      pull.Stop();
    }
    // Both stop at once: the transfer under way reports it, and no rank waits.
    if (ranks->rank() == 1) {
      EXPECT_FALSE(Serve(*ranks, 1000, 100).ok());
    } else {
      RankPull pull(*ranks, 1, 1000, kWindowBytes);
      ASSERT_OK(pull.Read(dcp::MutableByteSpan(received.data(), 10)));
      pull.Stop();
    }
    EXPECT_OK(dcp::Agree(*ranks, absl::OkStatus()));
  });
}

}  // namespace
}  // namespace fsdp
