// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/ranks/rank_stream.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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

std::string Bytes(size_t length) {
  std::string bytes;
  for (size_t i = 0; i < length; ++i) {
    bytes += static_cast<char>(i * i % 251);
  }
  return bytes;
}

TEST(RankStream, ArrivesWholeAndInOrder) {
  RunRanks(2, [] {
    init_process_group();
    ASSERT_OK_AND_ASSIGN(const auto ranks,
                         ProcessGroupCoordinator::Make(nullptr, "test"));
    for (const size_t length : {0, 1, 99, 100, 101, 200, 1234}) {
      const std::string bytes = Bytes(length);
      if (ranks->rank() == 0) {
        RankStreamWriter writer(*ranks, 1, length, 100);
        for (size_t i = 0; i < length; i += 37) {
          ASSERT_OK(writer.Write(dcp::AsBytes(bytes.substr(i, 37))));
        }
        ASSERT_OK(writer.Finish());
        continue;
      }
      std::string received;
      ASSERT_OK(ReadRankStream(*ranks, length, 100, [&](dcp::ByteSpan piece) {
        EXPECT_LE(piece.size(), 100u);
        absl::StrAppend(&received, dcp::AsText(piece));
        return absl::OkStatus();
      }));
      EXPECT_EQ(received, bytes);
    }
  });
}

TEST(RankStream, OneEndsFailureStopsTheOtherCleanly) {
  RunRanks(2, [] {
    init_process_group();
    ASSERT_OK_AND_ASSIGN(const auto ranks,
                         ProcessGroupCoordinator::Make(nullptr, "test"));
    const std::string bytes = Bytes(1000);
    // Rank 0 stops after so many bytes; then rank 1 takes no more.
    for (const size_t written : {0, 50, 100, 950, 1000}) {
      if (ranks->rank() == 0) {
        RankStreamWriter writer(*ranks, 1, 1000, 100);
        ASSERT_OK(writer.Write(dcp::AsBytes(bytes.substr(0, written))));
        writer.Abandon();
      } else {
        EXPECT_THAT(
            ReadRankStream(*ranks, 1000, 100,
                           [](dcp::ByteSpan) { return absl::OkStatus(); }),
            StatusIs(written < 1000 ? absl::StatusCode::kAborted
                                    : absl::StatusCode::kOk));
      }
    }
    if (ranks->rank() == 0) {
      RankStreamWriter writer(*ranks, 1, 1000, 100);
      ASSERT_OK(writer.Write(dcp::AsBytes(bytes)));
      EXPECT_OK(writer.Finish());
    } else {
      EXPECT_THAT(ReadRankStream(
                      *ranks, 1000, 100,
                      [](dcp::ByteSpan) { return absl::DataLossError("no"); }),
                  StatusIs(absl::StatusCode::kDataLoss, "no"));
    }
    EXPECT_OK(dcp::Agree(*ranks, absl::OkStatus()));
  });
}

}  // namespace
}  // namespace fsdp
