// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/s3/s3_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::StatusIs;

// The aws-c-s3 numbers for an unsuccessful answer, and for a server error after
// all tries; any other number is a network error.
constexpr int kInvalidStatus = 14 * 1024 + 7;
constexpr int kInternalError = 14 * 1024 + 5;
constexpr int kCanceled = 14 * 1024 + 11;

S3Answer Refused(int status, absl::string_view code,
                 absl::string_view message = "") {
  S3Answer answer;
  answer.error = kInvalidStatus;
  answer.status = status;
  answer.num_tries = 1;
  answer.request_id = "tx01";
  if (!code.empty()) {
    answer.body = absl::StrCat("<Error><Code>", code, "</Code><Message>",
                               message, "</Message></Error>");
  }
  return answer;
}

absl::Status Error(const S3Answer& answer,
                   absl::string_view operation = "PutObject") {
  return S3Error("s3://bucket", "run/key", operation, answer);
}

TEST(S3Error, SuccessIsOk) { EXPECT_OK(Error(S3Answer())); }

TEST(S3Error, NamesObjectRequestCodeAndId) {
  EXPECT_EQ(Error(Refused(404, "NoSuchKey", "Gone.")).message(),
            "s3://bucket/run/key: PutObject: HTTP 404 NoSuchKey: Gone. "
            "(request tx01)");
}

TEST(S3Error, AdvisesWhereToLook) {
  const struct {
    int status;
    const char* code;
    absl::StatusCode expected;
    const char* advice;
  } kCases[] = {
      {404, "NoSuchBucket", absl::StatusCode::kNotFound, "name of the bucket"},
      {403, "AccessDenied", absl::StatusCode::kPermissionDenied,
       "permission s3:PutObject"},
      {403, "RequestTimeTooSkewed", absl::StatusCode::kPermissionDenied,
       "check the clock"},
      {403, "InvalidAccessKeyId", absl::StatusCode::kPermissionDenied,
       "AWS_ACCESS_KEY_ID"},
      {400, "ExpiredToken", absl::StatusCode::kPermissionDenied, "expired"},
      {301, "PermanentRedirect", absl::StatusCode::kInvalidArgument,
       "AWS_REGION"},
      {412, "PreconditionFailed", absl::StatusCode::kFailedPrecondition, ""},
      {507, "InsufficientStorage", absl::StatusCode::kResourceExhausted,
       "full"},
      {403, "QuotaExceeded", absl::StatusCode::kResourceExhausted, "quota"},
      {400, "BadDigest", absl::StatusCode::kDataLoss, "changed"},
      {501, "NotImplemented", absl::StatusCode::kUnimplemented,
       "TESSERA_S3_CONDITIONAL=none"},
      {429, "TooManyRequests", absl::StatusCode::kUnavailable,
       "TESSERA_S3_CONNECTIONS"},
      // Without a known code, the status decides.
      {403, "", absl::StatusCode::kPermissionDenied, "clock"},
      {404, "", absl::StatusCode::kNotFound, ""},
      {418, "Teapot", absl::StatusCode::kUnknown, "Teapot"},
      {599, "Odd", absl::StatusCode::kUnavailable, "again later"},
  };
  for (const auto& known : kCases) {
    EXPECT_THAT(Error(Refused(known.status, known.code)),
                StatusIs(known.expected, HasSubstr(known.advice)))
        << known.code;
  }
}

TEST(S3Error, NamesThePermissionOfEachRequest) {
  const S3Answer denied = Refused(403, "AccessDenied");
  EXPECT_THAT(Error(denied, "GetObject").message(), HasSubstr("s3:GetObject"));
  EXPECT_THAT(Error(denied, "ListObjectsV2").message(),
              HasSubstr("s3:ListBucket"));
  EXPECT_THAT(Error(denied, "ListParts").message(),
              HasSubstr("s3:ListMultipartUploadParts"));
  EXPECT_THAT(Error(denied, "DeleteObjects").message(),
              HasSubstr("s3:DeleteObject"));
}

TEST(S3Error, WithoutAnAnswerTheLibraryIsQuoted) {
  S3Answer answer;
  answer.error = kInternalError;
  answer.status = 500;
  answer.num_tries = 12;
  EXPECT_THAT(Error(answer),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("HTTP 500"), HasSubstr("12 tries"))));
  answer.error = kCanceled;
  EXPECT_THAT(Error(answer), StatusIs(absl::StatusCode::kCancelled));
  answer.error = 1;
  EXPECT_THAT(Error(answer), StatusIs(absl::StatusCode::kUnavailable,
                                      HasSubstr("check the network")));
}

TEST(S3Error, SanitisesTheServersText) {
  const std::string text =
      absl::StrCat("line\n\x1b[31m", std::string(900, 'a'));
  const absl::Status status = Error(Refused(400, "Odd", text));
  EXPECT_THAT(status.message(),
              AllOf(Not(HasSubstr("\n")), Not(HasSubstr("\x1b"))));
  EXPECT_LT(status.message().size(), 500);
  EXPECT_THAT(
      Error(Refused(400, "Odd", "see /b/k?X-Amz-Signature=abc")).message(),
      Not(HasSubstr("Signature")));
}

TEST(S3Error, NamesOneObjectAmongSeveral) {
  S3ErrorText error;
  error.code = "AccessDenied";
  error.key = "other";
  EXPECT_THAT(S3Error("s3://bucket", "DeleteObjects", S3Answer(), error),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr("s3://bucket/other"),
                             HasSubstr("s3:DeleteObject"))));
}

TEST(S3Error, ReturnsTheServersCode) {
  EXPECT_EQ(S3ErrorCode(Refused(403, "AccessDenied")), "AccessDenied");
  EXPECT_EQ(S3ErrorCode(Refused(403, "")), "");
}

}  // namespace
}  // namespace dcp
