// SPDX-License-Identifier: Apache-2.0

#include "server/process/token_bucket.h"

#include "gtest/gtest.h"

namespace dcp::server {
namespace {

TEST(TokenBucket, GivesABurstAndThenARate) {
  TokenBucket bucket({.burst = 3, .per_second = 2});
  const absl::Duration start = absl::Seconds(100);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(bucket.Take(start));
  EXPECT_FALSE(bucket.Take(start));
  EXPECT_FALSE(bucket.Take(start + absl::Milliseconds(400)));
  EXPECT_TRUE(bucket.Take(start + absl::Milliseconds(500)));
  EXPECT_FALSE(bucket.Take(start + absl::Milliseconds(500)));
}

TEST(TokenBucket, RecoversFromADebt) {
  TokenBucket bucket({.burst = 3, .per_second = 2});
  const absl::Duration start = absl::Seconds(100);
  EXPECT_TRUE(bucket.Take(start, 0));
  EXPECT_TRUE(bucket.Take(start, 10));
  EXPECT_FALSE(bucket.Take(start, 0));
  // 7 are missing, and 1 must be there.
  EXPECT_FALSE(bucket.Take(start + absl::Milliseconds(3900)));
  EXPECT_TRUE(bucket.Take(start + absl::Milliseconds(4100)));
}

TEST(TokenBucket, HoldsNoMoreThanTheBurst) {
  TokenBucket bucket({.burst = 2, .per_second = 1});
  EXPECT_TRUE(bucket.Take(absl::Seconds(1)));
  EXPECT_TRUE(bucket.Take(absl::Hours(1)));
  EXPECT_TRUE(bucket.Take(absl::Hours(1)));
  EXPECT_FALSE(bucket.Take(absl::Hours(1)));
}

TEST(TokenBucket, GivesNothingWhenTimeGoesBack) {
  TokenBucket bucket({.burst = 1, .per_second = 1});
  EXPECT_TRUE(bucket.Take(absl::Seconds(100)));
  EXPECT_FALSE(bucket.Take(absl::Seconds(1)));
  EXPECT_FALSE(bucket.Take(absl::Seconds(100)));
  EXPECT_TRUE(bucket.Take(absl::Seconds(101)));
}

}  // namespace
}  // namespace dcp::server
