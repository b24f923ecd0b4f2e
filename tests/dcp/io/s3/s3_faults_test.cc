// What becomes of the faults of servers and networks, with a real server behind
// a proxy.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "dcp/base/limits.h"
#include "dcp/io/object/retried_requests.h"
#include "dcp/io/s3/s3_settings.h"
#include "dcp/io/s3/s3_store.h"
#include "tests/dcp/io/object/store_contract.h"
#include "tests/testing/faulty_proxy.h"
#include "tests/testing/object_server.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::testing::AllOf;
using testing::FaultyProxy;
using ::testing::HasSubstr;
using testing::IsOkAndHolds;
using ::testing::Not;
using testing::ObjectServer;
using testing::StatusIs;

constexpr uint32_t kNumRetries = 3;

class S3FaultsTest : public ::testing::Test {
 protected:
  // Opens the bucket through a proxy; `faults` begin when it is open.
  void Open(FaultyProxy::Faults faults) {
    FaultyProxy::Faults later;
    later.stalls = faults.stalls;
    later.instead = [this, faults](const std::string& head) {
      return is_open_ && faults.instead ? faults.instead(head) : std::nullopt;
    };
    later.change = [this, faults](const std::string& head,
                                  const std::string& answer) {
      return is_open_ && faults.change ? faults.change(head, answer) : answer;
    };
    const absl::StatusOr<S3Settings> settings = Settings(std::move(later));
    ASSERT_OK(settings);
    absl::StatusOr<std::unique_ptr<ObjectStore>> store =
        OpenS3Store(ObjectServer::kBucket, *settings);
    ASSERT_OK(store);
    store_ = *std::move(store);
    is_open_ = true;
  }

  absl::StatusOr<S3Settings> Settings(FaultyProxy::Faults faults) {
    proxy_ = std::make_unique<FaultyProxy>(ObjectServer::Get().endpoint(),
                                           std::move(faults));
    absl::StatusOr<S3Settings> settings = ReadS3Settings();
    if (settings.ok()) {
      settings->endpoint = proxy_->endpoint();
      settings->num_retries = num_retries_;
      settings->give_up_s = give_up_s_;
      settings->first_wait_ms = 1;
      settings->longest_wait_s = 1;
    }
    return settings;
  }

  // Answers `answer` to the first `num` requests that have `what` in their
  // first line.
  void OpenWithAnswers(int num, std::string what, std::string answer) {
    Open({.instead =
              [this, num, what = std::move(what), answer = std::move(answer)](
                  const std::string& head) -> std::optional<std::string> {
            const std::string line = head.substr(0, head.find('\r'));
            if (!absl::StrContains(line, what) || ++num_faults_ > num) {
              return std::nullopt;
            }
            return answer;
          },
          .change = nullptr});
  }

  // The upload of one part at `key`, ready to be finished.
  ObjectPart BeginWithPart(const std::string& key, std::string& upload) {
    const absl::StatusOr<std::string> id = store_->Begin(key, "");
    EXPECT_OK(id);
    upload = id.value_or("");
    const absl::StatusOr<ObjectPart> part =
        PutPart(*store_, key, upload, 1, "part");
    EXPECT_OK(part);
    return part.value_or(ObjectPart());
  }

  uint32_t num_retries_ = kNumRetries;
  uint32_t give_up_s_ = S3Settings().give_up_s;
  std::atomic<bool> is_open_ = false;
  std::atomic<int> num_faults_ = 0;
  std::unique_ptr<FaultyProxy> proxy_;
  std::unique_ptr<ObjectStore> store_;
};

TEST_F(S3FaultsTest, AServerThatIsOverloadedForAWhileIsAskedAgain) {
  OpenWithAnswers(kNumRetries, "PUT",
                  FaultyProxy::Error("503 Slow Down", "SlowDown"));
  const absl::StatusOr<std::string> etag = Put(*store_, "fault", "text");
  ASSERT_OK(etag);
  EXPECT_EQ(num_faults_, kNumRetries + 1);
  EXPECT_THAT(Get(*store_, "fault", *etag, 0, 4), IsOkAndHolds("text"));
}

TEST_F(S3FaultsTest, AServerThatStaysOverloadedIsUnavailable) {
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

TEST_F(S3FaultsTest, TooManyRequestsAndConflictsAreTriedAgain) {
  OpenWithAnswers(
      2, "PUT", FaultyProxy::Error("429 Too Many Requests", "TooManyRequests"));
  EXPECT_OK(Put(*store_, "fault", "text"));
  EXPECT_EQ(num_faults_, 3);
}

// Whoever tries again: Amazon's client, or we.
TEST_F(S3FaultsTest, AfterTheLongestTimeATryThatFailsIsTheLast) {
  give_up_s_ = 0;
  for (const std::string& answer :
       {FaultyProxy::Error("503 Slow Down", "SlowDown"),
        FaultyProxy::Error("429 Too Many Requests", "TooManyRequests"),
        FaultyProxy::Error("409 Conflict", "ConditionalRequestConflict"),
        std::string()}) {
    SCOPED_TRACE(answer);
    is_open_ = false;
    num_faults_ = 0;
    Open({.instead = nullptr,
          .change = [&](const std::string&, const std::string&) {
            ++num_faults_;
            return answer;
          }});
    EXPECT_THAT(Put(*store_, "fault", "text"),
                StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_EQ(num_faults_, 1);
  }
}

TEST_F(S3FaultsTest, ARequestCountsAsRetriedUntilItEnds) {
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

TEST_F(S3FaultsTest, AConflictOfConditionsIsTriedAgain) {
  OpenWithAnswers(
      2, "PUT",
      FaultyProxy::Error("409 Conflict", "ConditionalRequestConflict"));
  EXPECT_OK(store_->Remove({"fault"}));
  EXPECT_OK(Put(*store_, "fault", "text", {PutCondition::Kind::kIfAbsent, ""}));
  EXPECT_EQ(num_faults_, 3);
}

TEST_F(S3FaultsTest, AConflictThatStaysIsUnavailable) {
  OpenWithAnswers(
      100, "PUT",
      FaultyProxy::Error("409 Conflict", "ConditionalRequestConflict"));
  EXPECT_THAT(
      Put(*store_, "fault", "text"),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("another writer")));
  EXPECT_EQ(num_faults_, kNumRetries + 1);
}

TEST_F(S3FaultsTest, ABodyThatIsCutIsReadAgain) {
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

TEST_F(S3FaultsTest, AnswersThatAreLostAreAskedForAgain) {
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

TEST_F(S3FaultsTest, ABodyThatStallsIsReadAgain) {
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

// A part of the body is missing, and the head says its length as it is sent.
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

// Where the missing part begins, and its length.
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

TEST_P(S3ShortBodyTest, IsAskedForAgain) {
  OpenWithShortBodies(2);
  const absl::StatusOr<std::string> etag = Put(*store_, "fault", text_);
  ASSERT_OK(etag);
  const absl::StatusOr<std::string> back =
      Get(*store_, "fault", *etag, 0, text_.size());
  ASSERT_OK(back);
  EXPECT_TRUE(*back == text_);
  EXPECT_EQ(num_faults_, 3);
}

TEST_P(S3ShortBodyTest, IsNotAskedForAgainAfterTheLongestTime) {
  give_up_s_ = 0;
  OpenWithShortBodies(1000);
  const absl::StatusOr<std::string> etag = Put(*store_, "fault", text_);
  ASSERT_OK(etag);
  EXPECT_THAT(Get(*store_, "fault", *etag, 0, text_.size()),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(num_faults_, 1);
}

TEST_P(S3ShortBodyTest, IsAnErrorIfItStays) {
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

TEST_F(S3FaultsTest, AnotherRangeThanTheOneAskedForIsUnavailable) {
  Open({.instead = nullptr,
        .change = [](const std::string&, const std::string& answer) {
          return absl::StrReplaceAll(
              answer, {{"Content-Range: bytes 2-", "Content-Range: bytes 0-"}});
        }});
  const absl::StatusOr<std::string> etag = Put(*store_, "fault", "12345");
  ASSERT_OK(etag);
  EXPECT_THAT(Get(*store_, "fault", *etag, 2, 3),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("other bytes than were asked for")));
  EXPECT_THAT(Get(*store_, "fault", *etag, 1, 3), IsOkAndHolds("234"));
}

TEST_F(S3FaultsTest, AServerThatIgnoresRangesIsRefused) {
  const std::string whole =
      FaultyProxy::Answer("200 OK", "12345", "ETag: \"e\"\r\n");
  OpenWithAnswers(100, "GET", whole);
  EXPECT_THAT(Get(*store_, "fault", "\"e\"", 2, 3),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(S3FaultsTest, AServerThatIgnoresIfMatchIsFoundOutByTheEtag) {
  const std::string other =
      FaultyProxy::Answer("206 Partial Content", "34",
                          "ETag: \"other\"\r\nContent-Range: bytes 2-3/5\r\n");
  OpenWithAnswers(100, "GET", other);
  EXPECT_THAT(Get(*store_, "fault", "\"e\"", 2, 2),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("replaced while it was read")));
}

TEST_F(S3FaultsTest, AnErrorInASuccessfulAnswerIsAnError) {
  OpenWithAnswers(1, "POST /tessera/fault?uploadId",
                  FaultyProxy::Error("200 OK", "InternalError"));
  std::string upload;
  const ObjectPart part = BeginWithPart("fault", upload);
  EXPECT_OK(store_->Finish("fault", upload, {part}, true));
  EXPECT_EQ(num_faults_, 2);
}

TEST_F(S3FaultsTest, AnErrorInASuccessfulAnswerThatStaysIsReported) {
  OpenWithAnswers(100, "POST /tessera/fault?uploadId",
                  FaultyProxy::Error("200 OK", "AccessDenied"));
  std::string upload;
  const ObjectPart part = BeginWithPart("fault", upload);
  EXPECT_THAT(store_->Finish("fault", upload, {part}, true),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       HasSubstr("AccessDenied: A fault.")));
  EXPECT_EQ(num_faults_, 1);
  EXPECT_OK(store_->Abort("fault", upload));
}

// Amazon then says that there is no such upload.
TEST_F(S3FaultsTest, AnUploadWhoseEndWasNotAnsweredIsFinished) {
  Open({.instead =
            [this](const std::string& head) -> std::optional<std::string> {
          if (!absl::StartsWith(head, "POST /tessera/fault?uploadId") ||
              ++num_faults_ < 2) {
            return std::nullopt;
          }
          return FaultyProxy::Error("404 Not Found", "NoSuchUpload");
        },
        .change =
            [](const std::string& head, const std::string& answer) {
              return absl::StartsWith(head, "POST /tessera/fault?uploadId")
                         ? std::string()
                         : answer;
            }});
  std::string upload;
  const ObjectPart part = BeginWithPart("fault", upload);
  EXPECT_OK(store_->Finish("fault", upload, {part}, true));
  EXPECT_EQ(num_faults_, 2);
  const absl::StatusOr<ObjectInfo> info = store_->Head("fault");
  ASSERT_OK(info);
  EXPECT_EQ(info->size, 4);
}

TEST_F(S3FaultsTest, AnUploadIsNotFinishedWithPartsThatTheServerLacks) {
  Open({});
  std::string upload;
  ObjectPart part = BeginWithPart("fault", upload);
  EXPECT_THAT(
      store_->Finish("fault", upload, {part, {2, 4, part.etag}}, true),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("s3://tessera/fault"), HasSubstr("part"))));
  part.etag = "\"00000000000000000000000000000000\"";
  EXPECT_THAT(store_->Finish("fault", upload, {part}, true),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_OK(store_->Abort("fault", upload));
}

// Such as moto, which the tests of many programs use.
TEST_F(S3FaultsTest, AServerWithoutAListOfPartsTakesFiles) {
  OpenWithAnswers(100, "GET /tessera/fault?uploadId",
                  FaultyProxy::Error("501 Not Implemented", "NotImplemented"));
  std::string upload;
  const ObjectPart part = BeginWithPart("fault", upload);
  EXPECT_OK(store_->Finish("fault", upload, {part}, true));
  EXPECT_EQ(num_faults_, 0);
}

// The server has other bytes than were sent, and says so by its ETag alone.
class S3ChangedPutTest : public S3FaultsTest {
 protected:
  void OpenWithOtherEtags(int num) {
    Open({.instead = nullptr,
          .change = [this, num](const std::string& head,
                                const std::string& answer) {
            if (!absl::StartsWith(head, "PUT") || ++num_faults_ > num) {
              return answer;
            }
            std::string changed = answer;
            const size_t etag = changed.find("ETag: \"") + 7;
            changed[etag] = changed[etag] == '0' ? '1' : '0';
            return changed;
          }});
  }
};

TEST_F(S3ChangedPutTest, ASingleOneIsSentAgain) {
  OpenWithOtherEtags(1);
  std::string upload;
  const ObjectPart part = BeginWithPart("fault", upload);
  EXPECT_EQ(num_faults_, 2);
  EXPECT_OK(store_->Finish("fault", upload, {part}, true));
}

TEST_F(S3ChangedPutTest, OneThatStaysIsDataLoss) {
  OpenWithOtherEtags(100);
  const absl::StatusOr<std::string> upload = store_->Begin("fault", "");
  ASSERT_OK(upload);
  EXPECT_THAT(PutPart(*store_, "fault", *upload, 1, "part"),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("s3://tessera/fault"),
                             HasSubstr("TESSERA_S3_CHECKSUM=md5"))));
  EXPECT_THAT(Put(*store_, "fault", "text"),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("other bytes than were sent")));
  EXPECT_OK(store_->Abort("fault", *upload));
}

TEST_F(S3FaultsTest, AClockThatIsWrongIsSaidSoon) {
  num_retries_ = 1000;
  OpenWithAnswers(2000, "PUT",
                  FaultyProxy::Error("403 Forbidden", "RequestTimeTooSkewed"));
  EXPECT_THAT(Put(*store_, "fault", "text"),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       HasSubstr("check the clock")));
  // Three, and perhaps one that had begun.
  EXPECT_GE(num_faults_, 3);
  EXPECT_LT(num_faults_, 10);
}

TEST_F(S3FaultsTest, ExpiredCredentialsAreReadAgainOnce) {
  OpenWithAnswers(1, "PUT",
                  FaultyProxy::Error("400 Bad Request", "ExpiredToken"));
  EXPECT_OK(Put(*store_, "fault", "text"));
  EXPECT_EQ(num_faults_, 2);
}

TEST_F(S3FaultsTest, CredentialsThatStayExpiredAreReported) {
  OpenWithAnswers(100, "PUT",
                  FaultyProxy::Error("400 Bad Request", "ExpiredToken"));
  EXPECT_THAT(Put(*store_, "fault", "text"),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr("have expired"),
                             Not(HasSubstr("tesserasecret")))));
  EXPECT_EQ(num_faults_, 2);
}

TEST_F(S3FaultsTest, TheBucketsRegionReplacesAnother) {
  FaultyProxy::Faults faults;
  faults.instead =
      [this](const std::string& head) -> std::optional<std::string> {
    if (absl::StrContains(head, "/eu-west-1/s3/")) return std::nullopt;
    ++num_faults_;
    return FaultyProxy::Answer("301 Moved Permanently",
                               "<Error><Code>PermanentRedirect</Code></Error>",
                               "x-amz-bucket-region: eu-west-1\r\n");
  };
  const absl::StatusOr<S3Settings> settings = Settings(std::move(faults));
  ASSERT_OK(settings);
  const absl::StatusOr<std::unique_ptr<ObjectStore>> store =
      OpenS3Store(ObjectServer::kBucket, *settings);
  ASSERT_OK(store);
  EXPECT_OK(Put(**store, "fault", "text"));
  EXPECT_EQ(num_faults_, 1);
}

TEST_F(S3FaultsTest, ARedirectToNowhereSaysWhatToSet) {
  FaultyProxy::Faults faults;
  faults.instead = [](const std::string&) {
    return FaultyProxy::Error("301 Moved Permanently", "PermanentRedirect");
  };
  const absl::StatusOr<S3Settings> settings = Settings(std::move(faults));
  ASSERT_OK(settings);
  EXPECT_THAT(OpenS3Store(ObjectServer::kBucket, *settings),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("set AWS_REGION")));
}

TEST_F(S3FaultsTest, AServerThatIsNotThereIsUnavailable) {
  absl::StatusOr<S3Settings> settings = Settings({});
  ASSERT_OK(settings);
  proxy_.reset();
  EXPECT_THAT(OpenS3Store(ObjectServer::kBucket, *settings),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("s3://tessera"),
                             HasSubstr("check the network"))));
}

TEST_F(S3FaultsTest, ARequestThatWaitsToBeTriedAgainCanBeStopped) {
  std::stop_source stop;
  Open({.instead = [&](const std::string& head) -> std::optional<std::string> {
          if (!absl::StartsWith(head, "GET")) return std::nullopt;
          stop.request_stop();
          return FaultyProxy::Error("503 Slow Down", "SlowDown");
        },
        .change = nullptr});
  EXPECT_THAT(Get(*store_, "fault", "\"e\"", 0, 1, stop.get_token()),
              StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(S3FaultsTest, AListWithKeysFromElsewhereIsUnavailable) {
  OpenWithAnswers(1, "GET",
                  FaultyProxy::Answer("200 OK",
                                      "<ListBucketResult><Contents><Key>b</Key>"
                                      "</Contents></ListBucketResult>"));
  EXPECT_THAT(
      store_->List("a/", true, ""),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("lists \"b\"")));
}

}  // namespace
}  // namespace dcp
