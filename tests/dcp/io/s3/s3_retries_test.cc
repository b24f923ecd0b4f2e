// SPDX-License-Identifier: Apache-2.0
// Which requests a server gets again, how often and for how long.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/io/object/retried_requests.h"
#include "dcp/io/s3/s3_settings.h"
#include "dcp/io/s3/s3_store.h"
#include "tests/dcp/io/object/store_contract.h"
#include "tests/dcp/io/s3/s3_faults_fixture.h"
#include "tests/testing/faulty_proxy.h"
#include "tests/testing/object_server.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::testing::AllOf;
using testing::FaultyProxy;
using ::testing::HasSubstr;
using testing::IsOkAndHolds;
using testing::kNumRetries;
using testing::ObjectServer;
using testing::S3FaultsTest;
using testing::StatusIs;

TEST_F(S3FaultsTest, ATemporarilyOverloadedServerIsRetried) {
  OpenWithAnswers(kNumRetries, "PUT",
                  FaultyProxy::Error("503 Slow Down", "SlowDown"));
  const absl::StatusOr<std::string> etag = Put(*store_, "fault", "text");
  ASSERT_OK(etag);
  EXPECT_EQ(num_faults_, kNumRetries + 1);
  EXPECT_THAT(Get(*store_, "fault", *etag, 0, 4), IsOkAndHolds("text"));
}

TEST_F(S3FaultsTest, APersistentlyOverloadedServerIsUnavailable) {
  OpenWithAnswers(100, "PUT", FaultyProxy::Error("503 Slow Down", "SlowDown"));
  EXPECT_THAT(
      Put(*store_, "fault", "text"),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr("s3://tessera/fault"), HasSubstr("HTTP 503"),
                     HasSubstr("request fault-1"), HasSubstr("4 tries"),
                     HasSubstr("TESSERA_S3_CONNECTIONS"))));
  EXPECT_EQ(num_faults_, kNumRetries + 1);
  EXPECT_OK(store_->List("", true, ""));
}

TEST_F(S3FaultsTest, TooManyRequestsAndConflictsAreRetried) {
  OpenWithAnswers(
      2, "PUT", FaultyProxy::Error("429 Too Many Requests", "TooManyRequests"));
  EXPECT_OK(Put(*store_, "fault", "text"));
  EXPECT_EQ(num_faults_, 3);
}

// Either Amazon's client or our code retries. Amazon's may have begun another
// try or two when it is stopped.
TEST_F(S3FaultsTest, NoRetryBeginsAfterTheDeadline) {
  give_up_s_ = 0;
  num_retries_ = 40;
  for (const std::string& answer :
       {FaultyProxy::Error("503 Slow Down", "SlowDown"),
        FaultyProxy::Error("429 Too Many Requests", "TooManyRequests"),
        FaultyProxy::Error("409 Conflict", "ConditionalRequestConflict"),
        std::string()}) {
    SCOPED_TRACE(answer);
    is_open_ = false;
    num_faults_ = 0;
    Open({.instead = nullptr,
          .change = [this, answer](const std::string&, const std::string&) {
            ++num_faults_;
            return answer;
          }});
    EXPECT_THAT(Put(*store_, "fault", "text"),
                StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_LT(num_faults_, 20);
  }
}

TEST_F(S3FaultsTest, ARetriedRequestCountsUntilItEnds) {
  std::vector<int64_t> counts;
  Open({.instead = [&](const std::string&) -> std::optional<std::string> {
          counts.push_back(NumRetriedRequests());
          if (counts.size() > 2) return std::nullopt;
          return FaultyProxy::Error("429 Too Many Requests", "TooManyRequests");
        },
        .change = nullptr});
  EXPECT_OK(Put(*store_, "fault", "text"));
  EXPECT_THAT(counts, ::testing::ElementsAre(0, 1, 1));
  EXPECT_EQ(NumRetriedRequests(), 0);
}

TEST_F(S3FaultsTest, AConditionalConflictIsRetried) {
  OpenWithAnswers(
      2, "PUT",
      FaultyProxy::Error("409 Conflict", "ConditionalRequestConflict"));
  EXPECT_OK(store_->Remove({"fault"}));
  EXPECT_OK(Put(*store_, "fault", "text", {PutCondition::Kind::kIfAbsent, ""}));
  EXPECT_EQ(num_faults_, 3);
}

TEST_F(S3FaultsTest, APersistentConflictIsUnavailable) {
  OpenWithAnswers(
      100, "PUT",
      FaultyProxy::Error("409 Conflict", "ConditionalRequestConflict"));
  EXPECT_THAT(
      Put(*store_, "fault", "text"),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("another writer")));
  EXPECT_EQ(num_faults_, kNumRetries + 1);
}

TEST_F(S3FaultsTest, ATruncatedBodyIsReadAgain) {
  const std::string text = PatternedText(500'000, 1);
  Open({.instead = nullptr,
        .change = [this](const std::string& head, const std::string& answer) {
          if (!absl::StartsWith(head, "GET") || ++num_faults_ > 2) {
            return answer;
          }
          return answer.substr(0, answer.size() / 2);
        }});
  const absl::StatusOr<std::string> etag = Put(*store_, "fault", text);
  ASSERT_OK(etag);
  const absl::StatusOr<std::string> back =
      Get(*store_, "fault", *etag, 0, text.size());
  ASSERT_OK(back);
  EXPECT_TRUE(*back == text);
  EXPECT_EQ(num_faults_, 3);
}

TEST_F(S3FaultsTest, LostAnswersAreRequestedAgain) {
  Open({.instead = nullptr,
        .change = [this](const std::string&, const std::string& answer) {
          return ++num_faults_ % 2 == 1 ? std::string() : answer;
        }});
  const absl::StatusOr<std::string> etag = Put(*store_, "fault", "text");
  ASSERT_OK(etag);
  EXPECT_THAT(Get(*store_, "fault", *etag, 1, 2), IsOkAndHolds("ex"));
  EXPECT_OK(store_->Head("fault"));
  EXPECT_EQ(num_faults_, 6);
}

TEST_F(S3FaultsTest, AStalledBodyIsReadAgain) {
  FaultyProxy::Faults faults;
  faults.stalls = true;
  faults.change = [this](const std::string& head, const std::string& answer) {
    if (!absl::StartsWith(head, "GET /tessera/fault") || ++num_faults_ > 1) {
      return answer;
    }
    return answer.substr(0, answer.size() - 10);
  };
  absl::StatusOr<S3Settings> settings = Settings(std::move(faults));
  ASSERT_OK(settings);
  settings->stalled_s = 1;
  absl::StatusOr<std::unique_ptr<ObjectStore>> store =
      OpenS3Store(ObjectServer::kBucket, *settings);
  ASSERT_OK(store);
  const absl::StatusOr<std::string> etag = Put(**store, "fault", "a long text");
  ASSERT_OK(etag);
  EXPECT_THAT(Get(**store, "fault", *etag, 0, 11), IsOkAndHolds("a long text"));
  EXPECT_EQ(num_faults_, 2);
}

// A part of the body is missing. The header has the length as sent.
std::string WithoutPartOfBody(const std::string& answer, size_t from,
                              size_t length) {
  const size_t body = answer.find("\r\n\r\n") + 4;
  std::string kept = answer.substr(body);
  kept.erase(std::min(from, kept.size()), length);
  const size_t begin = answer.find("Content-Length: ");
  const size_t end = answer.find('\r', begin);
  return absl::StrCat(answer.substr(0, begin), "Content-Length: ", kept.size(),
                      answer.substr(end, body - end), kept);
}

// The missing part's begin and length.
using ShortBody = std::pair<size_t, size_t>;

class S3ShortBodyTest : public S3FaultsTest,
                        public ::testing::WithParamInterface<ShortBody> {
 protected:
  // Leaves out a part of the first `num` bodies.
  void OpenWithShortBodies(int num) {
    Open({.instead = nullptr,
          .change = [this, num](const std::string& head,
                                const std::string& answer) {
            if (!absl::StartsWith(head, "GET") || ++num_faults_ > num) {
              return answer;
            }
            return WithoutPartOfBody(answer, GetParam().first,
                                     GetParam().second);
          }});
  }

  const std::string text_ = PatternedText(500'000, 1);
};

TEST_P(S3ShortBodyTest, IsRequestedAgain) {
  OpenWithShortBodies(2);
  const absl::StatusOr<std::string> etag = Put(*store_, "fault", text_);
  ASSERT_OK(etag);
  const absl::StatusOr<std::string> back =
      Get(*store_, "fault", *etag, 0, text_.size());
  ASSERT_OK(back);
  EXPECT_TRUE(*back == text_);
  EXPECT_EQ(num_faults_, 3);
}

TEST_P(S3ShortBodyTest, IsNotRequestedAgainAfterTheDeadline) {
  give_up_s_ = 0;
  OpenWithShortBodies(1000);
  const absl::StatusOr<std::string> etag = Put(*store_, "fault", text_);
  ASSERT_OK(etag);
  EXPECT_THAT(Get(*store_, "fault", *etag, 0, text_.size()),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(num_faults_, 1);
}

TEST_P(S3ShortBodyTest, IsAnErrorIfItPersists) {
  OpenWithShortBodies(100);
  const absl::StatusOr<std::string> etag = Put(*store_, "fault", text_);
  ASSERT_OK(etag);
  EXPECT_THAT(
      Get(*store_, "fault", *etag, 0, text_.size()),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr("s3://tessera/fault"),
                     HasSubstr("bytes of 500000"), HasSubstr("4 tries"))));
  EXPECT_EQ(num_faults_, kNumRetries + 1);
}

INSTANTIATE_TEST_SUITE_P(All, S3ShortBodyTest,
                         ::testing::Values(ShortBody{499'900, 100},
                                           ShortBody{250'000, 4096},
                                           ShortBody{0, 500'000}));

}  // namespace
}  // namespace dcp
