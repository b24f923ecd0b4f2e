// SPDX-License-Identifier: Apache-2.0
// The results of server and network faults, with a real server behind a proxy.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
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
using ::testing::Not;
using testing::ObjectServer;
using testing::S3FaultsTest;
using testing::StatusIs;

TEST_F(S3FaultsTest, AnotherRangeThanRequestedIsUnavailable) {
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

TEST_F(S3FaultsTest, TheEtagRevealsAServerThatIgnoresIfMatch) {
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

TEST_F(S3FaultsTest, APersistentErrorInASuccessfulAnswerIsReported) {
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
TEST_F(S3FaultsTest, AnUploadIsFinishedAfterALostAnswer) {
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

TEST_F(S3FaultsTest, AnUploadIsNotFinishedWithMissingParts) {
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

// Such as moto, which many programs use in tests.
TEST_F(S3FaultsTest, AServerWithoutPartListsTakesFiles) {
  OpenWithAnswers(100, "GET /tessera/fault?uploadId",
                  FaultyProxy::Error("501 Not Implemented", "NotImplemented"));
  std::string upload;
  const ObjectPart part = BeginWithPart("fault", upload);
  EXPECT_OK(store_->Finish("fault", upload, {part}, true));
  EXPECT_EQ(num_faults_, 0);
}

// The server has other bytes than were sent. Only the ETag shows it.
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

TEST_F(S3ChangedPutTest, IsSentAgain) {
  OpenWithOtherEtags(1);
  std::string upload;
  const ObjectPart part = BeginWithPart("fault", upload);
  EXPECT_EQ(num_faults_, 2);
  EXPECT_OK(store_->Finish("fault", upload, {part}, true));
}

TEST_F(S3ChangedPutTest, IsDataLossIfItPersists) {
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

TEST_F(S3FaultsTest, AWrongClockIsReportedSoon) {
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

TEST_F(S3FaultsTest, PersistentlyExpiredCredentialsAreReported) {
  OpenWithAnswers(100, "PUT",
                  FaultyProxy::Error("400 Bad Request", "ExpiredToken"));
  EXPECT_THAT(Put(*store_, "fault", "text"),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr("have expired"),
                             Not(HasSubstr("tesserasecret")))));
  EXPECT_EQ(num_faults_, 2);
}

TEST_F(S3FaultsTest, TheBucketsRegionReplacesTheConfiguredOne) {
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

TEST_F(S3FaultsTest, ARedirectWithoutALocationNamesTheSetting) {
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

TEST_F(S3FaultsTest, AnUnreachableServerIsUnavailable) {
  absl::StatusOr<S3Settings> settings = Settings({});
  ASSERT_OK(settings);
  proxy_.reset();
  EXPECT_THAT(OpenS3Store(ObjectServer::kBucket, *settings),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("s3://tessera"),
                             HasSubstr("check the network"))));
}

TEST_F(S3FaultsTest, AWaitingRetryCanBeStopped) {
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

TEST_F(S3FaultsTest, AListWithForeignKeysIsUnavailable) {
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
