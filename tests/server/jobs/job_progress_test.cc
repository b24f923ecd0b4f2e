// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/job_progress.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace dcp::server {
namespace {

constexpr absl::Duration kStart = absl::Seconds(1'000'000);

tessera::v1::JobMetadata Filled(const JobProgress& progress,
                                uint64_t num_bytes) {
  tessera::v1::JobMetadata metadata;
  progress.Fill(num_bytes, metadata);
  return metadata;
}

TEST(JobProgress, KnowsNothingBeforeItBegins) {
  const JobProgress progress;
  const auto metadata = Filled(progress, 7);
  EXPECT_EQ(metadata.bytes_done(), 0u);
  EXPECT_EQ(metadata.bytes_total(), 0u);
  EXPECT_FALSE(metadata.has_remaining());
}

TEST(JobProgress, TellsTheRateOfTheLastSeconds) {
  JobProgress progress;
  progress.Begin(10'000, 1'000, kStart);
  for (int i = 1; i <= 5; ++i) {
    progress.Sample(static_cast<uint64_t>(i) * 100, kStart + absl::Seconds(i));
  }
  const auto metadata = Filled(progress, 520);
  EXPECT_EQ(metadata.bytes_done(), 1'520u);
  EXPECT_EQ(metadata.bytes_total(), 10'000u);
  EXPECT_DOUBLE_EQ(metadata.bytes_per_second(), 100);
  EXPECT_EQ(metadata.remaining().seconds(), 84);
}

TEST(JobProgress, ForgetsWhatIsLongPast) {
  JobProgress progress;
  progress.Begin(1'000'000, 0, kStart);
  for (int i = 1; i <= 30; ++i) {
    const uint64_t bytes = i < 20 ? 0 : static_cast<uint64_t>(i - 20) * 50;
    progress.Sample(bytes, kStart + absl::Seconds(i));
  }
  EXPECT_DOUBLE_EQ(Filled(progress, 500).bytes_per_second(), 50);
}

TEST(JobProgress, GapsThatAreReadTooDoNotMakeMoreThanAll) {
  JobProgress progress;
  progress.Begin(100, 50, kStart);
  EXPECT_EQ(Filled(progress, 80).bytes_done(), 100u);
}

TEST(JobProgress, TwoSamplesOfOneMomentAreOne) {
  JobProgress progress;
  progress.Begin(100, 0, kStart);
  progress.Sample(10, kStart);
  const auto metadata = Filled(progress, 10);
  EXPECT_EQ(metadata.bytes_done(), 10u);
  EXPECT_DOUBLE_EQ(metadata.bytes_per_second(), 0);
}

TEST(JobProgress, OfOneThatStandsStillNobodyCanTellWhenItEnds) {
  JobProgress progress;
  progress.Begin(100, 0, kStart);
  progress.Sample(0, kStart + absl::Seconds(5));
  EXPECT_FALSE(Filled(progress, 0).has_remaining());
}

}  // namespace
}  // namespace dcp::server
