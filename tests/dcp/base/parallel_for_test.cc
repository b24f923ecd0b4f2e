// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/parallel_for.h"

#include <atomic>
#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/barrier.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;

TEST(ParallelFor, CallsTheBodyOnceForEachNumber) {
  for (const size_t count : {0u, 1u, 3u, 100u}) {
    std::vector<std::atomic<int>> calls(count);
    EXPECT_OK(ParallelFor(count, 8, [&](size_t i) {
      ++calls[i];
      return absl::OkStatus();
    }));
    for (const std::atomic<int>& num_calls : calls) EXPECT_EQ(num_calls, 1);
  }
}

// Would wait for ever if there were fewer threads.
TEST(ParallelFor, RunsEachOfAFewOnAThread) {
  auto* barrier = new absl::Barrier(4);
  EXPECT_OK(ParallelFor(4, 32, [&](size_t) {
    if (barrier->Block()) delete barrier;
    return absl::OkStatus();
  }));
}

TEST(ParallelFor, StopsAtAnError) {
  constexpr size_t kCount = 1'000'000;
  std::atomic<size_t> num_calls = 0;
  EXPECT_THAT(ParallelFor(kCount, 4,
                          [&](size_t i) {
                            ++num_calls;
                            return i == 20 ? absl::DataLossError("20")
                                           : absl::OkStatus();
                          }),
              StatusIs(absl::StatusCode::kDataLoss, "20"));
  EXPECT_LT(num_calls, kCount);
}

}  // namespace
}  // namespace dcp
