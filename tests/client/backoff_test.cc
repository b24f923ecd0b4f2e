// SPDX-License-Identifier: Apache-2.0

#include "client/backoff.h"

#include <stop_token>
#include <thread>

#include "dcp/base/steady_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/rpc_status.h"
#include "tests/testing/status_matchers.h"

namespace dcp::client {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

const absl::Status kUnavailable = absl::UnavailableError("gone");

RetryOptions Quick(int64_t max_retries) {
  return {.first_wait = absl::ZeroDuration(),
          .max_wait = absl::ZeroDuration(),
          .max_retries = max_retries};
}

TEST(Backoff, RetriesOnlyTemporaryFailures) {
  EXPECT_TRUE(IsRetryable(kUnavailable));
  EXPECT_TRUE(IsRetryable(absl::InternalError("RST_STREAM")));
  EXPECT_TRUE(
      IsRetryable(WithRetryAfter(absl::ResourceExhaustedError("queue"), 1)));
  for (const absl::Status& status :
       {absl::ResourceExhaustedError("limit"), absl::NotFoundError(""),
        absl::DataLossError(""), absl::DeadlineExceededError(""),
        absl::CancelledError("")}) {
    EXPECT_FALSE(IsRetryable(status)) << status;
    EXPECT_EQ(
        Backoff(Quick(9), true, absl::InfiniteDuration(), {}).Wait(status),
        status);
  }
}

TEST(Backoff, GivesUpAfterTooManyFailuresInARow) {
  Backoff backoff(Quick(2), true, absl::InfiniteDuration(), {});
  EXPECT_OK(backoff.Wait(kUnavailable));
  EXPECT_OK(backoff.Wait(kUnavailable));
  EXPECT_THAT(backoff.Wait(kUnavailable),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("after 2 retries: gone")));
  backoff.Reset();
  EXPECT_OK(backoff.Wait(kUnavailable));
}

TEST(Backoff, GivesUpSoonerIfTheDaemonNeverAnswered) {
  RetryOptions options = Quick(2);
  options.max_first_retries = 1;
  Backoff backoff(options, false, absl::InfiniteDuration(), {});
  EXPECT_OK(backoff.Wait(kUnavailable));
  EXPECT_EQ(backoff.Wait(kUnavailable).code(), absl::StatusCode::kUnavailable);
  backoff.Reset();
  EXPECT_OK(backoff.Wait(kUnavailable));
  EXPECT_OK(backoff.Wait(kUnavailable));
}

TEST(Backoff, ReturnsTheFailureWithoutRetries) {
  EXPECT_EQ(
      Backoff(Quick(0), true, absl::InfiniteDuration(), {}).Wait(kUnavailable),
      kUnavailable);
}

TEST(Backoff, DoesNotWaitBeyondTheDeadline) {
  RetryOptions options;
  options.first_wait = absl::Hours(1);
  options.max_wait = absl::Hours(1);
  Backoff backoff(options, true, SteadyNow() + absl::Minutes(1), {});
  EXPECT_EQ(backoff.Wait(kUnavailable), kUnavailable);
}

TEST(Backoff, DoublesEachWait) {
  const RetryOptions options{.first_wait = absl::Milliseconds(1),
                             .max_wait = absl::Hours(1),
                             .max_retries = 60};
  Backoff backoff(options, true, SteadyNow() + absl::Milliseconds(200), {});
  int num_waits = 0;
  while (backoff.Wait(kUnavailable).ok()) ++num_waits;
  // 1 + 2 + 4 + ... + 128 ms exceed the deadline.
  EXPECT_LT(num_waits, 8);
}

TEST(Backoff, ObeysTheServersRetryDelay) {
  const absl::Status later = WithRetryAfter(kUnavailable, 3'600'000);
  Backoff backoff(Quick(9), true, SteadyNow() + absl::Minutes(1), {});
  EXPECT_TRUE(absl::IsUnavailable(backoff.Wait(later)));
  EXPECT_OK(backoff.Wait(kUnavailable));
}

TEST(Backoff, StopEndsTheWait) {
  RetryOptions options;
  options.first_wait = absl::Hours(1);
  options.max_wait = absl::Hours(1);
  std::stop_source source;
  Backoff backoff(options, true, absl::InfiniteDuration(), source.get_token());
  std::jthread stopper([&] { source.request_stop(); });
  EXPECT_THAT(backoff.Wait(kUnavailable),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(backoff.Wait(kUnavailable),
              StatusIs(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace dcp::client
