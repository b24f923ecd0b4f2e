// SPDX-License-Identifier: Apache-2.0
// OpenS3Store's errors about wrong names, credentials, certificates and
// permissions, with a real server, and a server that is restarted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <memory>
#include <string>
#include <vector>

#include "dcp/base/limits.h"
#include "dcp/io/s3/s3_settings.h"
#include "dcp/io/s3/s3_store.h"
#include "tests/dcp/io/object/store_contract.h"
#include "tests/testing/object_server.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ObjectServer;
using testing::StatusIs;

using ::dcp::testing::kDenied;

class S3OpenTest : public ::testing::Test {
 protected:
  S3OpenTest() { ObjectServer::Get(); }
  ~S3OpenTest() override { SetKeys("tessera", "tesserasecret"); }

  static void SetKeys(const char* id, const char* secret) {
    setenv("AWS_ACCESS_KEY_ID", id, 1);
    setenv("AWS_SECRET_ACCESS_KEY", secret, 1);
  }

  static absl::StatusOr<std::unique_ptr<ObjectStore>> Open(const char* bucket) {
    const absl::StatusOr<S3Settings> settings = ReadS3Settings();
    EXPECT_OK(settings);
    return OpenS3Store(bucket, *settings);
  }
};

TEST_F(S3OpenTest, ReportsAMissingBucket) {
  EXPECT_THAT(
      Open("missing"),
      StatusIs(absl::StatusCode::kNotFound,
               AllOf(HasSubstr("s3://missing"), HasSubstr("NoSuchBucket"),
                     HasSubstr("request tx"), HasSubstr("check the name"))));
}

TEST_F(S3OpenTest, ReportsAnInvalidBucketName) {
  EXPECT_THAT(Open("a/b"), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("name of a bucket")));
}

TEST_F(S3OpenTest, ReportsAnUnknownAccessKey) {
  SetKeys("nobody", "secretive");
  EXPECT_THAT(Open(ObjectServer::kBucket),
              StatusIs(kDenied, AllOf(HasSubstr("InvalidAccessKeyId"),
                                      HasSubstr("AWS_ACCESS_KEY_ID"),
                                      Not(HasSubstr("secretive")))));
}

TEST_F(S3OpenTest, ReportsAWrongSecret) {
  SetKeys("tessera", "secretive");
  EXPECT_THAT(Open(ObjectServer::kBucket),
              StatusIs(kDenied, AllOf(HasSubstr("SignatureDoesNotMatch"),
                                      HasSubstr("AWS_SECRET_ACCESS_KEY"),
                                      Not(HasSubstr("secretive")))));
}

TEST_F(S3OpenTest, ReportsMissingCredentials) {
  unsetenv("AWS_ACCESS_KEY_ID");
  unsetenv("AWS_SECRET_ACCESS_KEY");
  setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
  EXPECT_THAT(Open(ObjectServer::kBucket),
              StatusIs(kDenied, AllOf(HasSubstr("s3://tessera"),
                                      HasSubstr("set AWS_ACCESS_KEY_ID"))));
}

TEST_F(S3OpenTest, ReportsAnotherUsersBucket) {
  const absl::StatusOr<std::unique_ptr<ObjectStore>> store =
      Open(ObjectServer::kBucketOfStranger);
  // It might be that objects may be read although they may not be listed.
  ASSERT_OK(store);
  EXPECT_THAT((*store)->List("", true, ""),
              StatusIs(kDenied, HasSubstr("s3:ListBucket")));
  EXPECT_THAT((*store)->Head("a"),
              StatusIs(kDenied, HasSubstr("s3:GetObject")));
  EXPECT_THAT(Put(**store, "a", "x"),
              StatusIs(kDenied, AllOf(HasSubstr("s3://stranger/a"),
                                      HasSubstr("s3:PutObject"))));
  EXPECT_THAT((*store)->Begin("a", ""),
              StatusIs(kDenied, HasSubstr("s3:PutObject")));
  EXPECT_THAT((*store)->Remove({"a"}),
              StatusIs(kDenied, HasSubstr("s3:DeleteObject")));
}

TEST_F(S3OpenTest, AcceptsATrustedCertificate) {
  absl::StatusOr<S3Settings> settings = ReadS3Settings();
  ASSERT_OK(settings);
  settings->endpoint = ObjectServer::Get().tls_endpoint();
  settings->ca_bundle = ObjectServer::Get().ca_bundle();
  const absl::StatusOr<std::unique_ptr<ObjectStore>> store =
      OpenS3Store(ObjectServer::kBucket, *settings);
  ASSERT_OK(store);
  const std::string text = PatternedText(3'000'000, 5);
  const absl::StatusOr<std::string> etag = Put(**store, "tls", text);
  ASSERT_OK(etag);
  const absl::StatusOr<std::string> back =
      Get(**store, "tls", *etag, 0, text.size());
  ASSERT_OK(back);
  EXPECT_TRUE(*back == text);
}

TEST_F(S3OpenTest, ReportsAMissingCertificateFile) {
  absl::StatusOr<S3Settings> settings = ReadS3Settings();
  ASSERT_OK(settings);
  settings->endpoint = ObjectServer::Get().tls_endpoint();
  settings->ca_bundle = "absent.pem";
  EXPECT_THAT(
      OpenS3Store(ObjectServer::kBucket, *settings),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("absent.pem"), HasSubstr("AWS_CA_BUNDLE"))));
}

TEST_F(S3OpenTest, SurvivesARestartOfTheServer) {
  const absl::StatusOr<std::unique_ptr<ObjectStore>> store =
      Open(ObjectServer::kBucket);
  ASSERT_OK(store);
  const absl::StatusOr<std::string> upload = (*store)->Begin("killed", "");
  ASSERT_OK(upload);
  const std::string text = PatternedText(kMinObjectPartBytes, 6);
  std::vector<ObjectPart> parts;
  for (uint32_t number = 1; number <= 4; ++number) {
    if (number == 2) ObjectServer::Get().RestartGateway();
    const absl::StatusOr<ObjectPart> part =
        PutPart(**store, "killed", *upload, number, text);
    ASSERT_OK(part);
    parts.push_back(*part);
  }
  ASSERT_OK((*store)->Finish("killed", *upload, parts, /*replaces=*/true));
  const absl::StatusOr<ObjectInfo> info = (*store)->Head("killed");
  ASSERT_OK(info);
  EXPECT_EQ(info->size, 4 * text.size());
  const absl::StatusOr<std::string> back =
      Get(**store, "killed", info->etag, 2 * text.size(), text.size());
  ASSERT_OK(back);
  EXPECT_TRUE(*back == text);
}

}  // namespace
}  // namespace dcp
