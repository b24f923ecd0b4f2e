// SPDX-License-Identifier: Apache-2.0

#include "server/reading/timed_answer.h"

#include <utility>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using Answer = TimedAnswer<absl::Status>;

const absl::Status& Late() {
  static const absl::Status& late =
      *new absl::Status(absl::UnavailableError("late"));
  return late;
}

TEST(TimedAnswer, OnlyTheFirstAnswerCounts) {
  int num_answers = 0;
  const auto answer =
      Answer::Start(absl::Hours(1), Late(), [&](const absl::Status& status) {
        ++num_answers;
        EXPECT_OK(status);
      });
  EXPECT_FALSE(answer->given());
  answer->Give(absl::OkStatus());
  EXPECT_TRUE(answer->given());
  answer->Give(absl::CancelledError("again"));
  EXPECT_EQ(num_answers, 1);
}

TEST(TimedAnswer, AnswersAfterTheTimeout) {
  absl::Status given;
  absl::Notification done;
  const auto answer =
      Answer::Start(absl::Milliseconds(5), Late(), [&](absl::Status status) {
        given = std::move(status);
        done.Notify();
      });
  done.WaitForNotification();
  EXPECT_THAT(given, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(answer->Take(), nullptr);
}

TEST(TimedAnswer, AlarmDoesNotAnswerAfterTake) {
  bool given = false;
  const auto answer = Answer::Start(absl::Hours(1), Late(),
                                    [&](const absl::Status&) { given = true; });
  Answer::Answered finish = answer->Take();
  answer->Give(Late());
  EXPECT_FALSE(given);
  finish(absl::OkStatus());
  EXPECT_TRUE(given);
}

}  // namespace
}  // namespace dcp::server
