// SPDX-License-Identifier: Apache-2.0

#include "plugins/arrow/arrow_error.h"

#include <arrow/util/io_util.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

namespace tessera {
namespace {

constexpr char kUrl[] = "gs://bucket/key";

TEST(ArrowError, KnowsGooglesErrors) {
  const arrow::Status denied = arrow::Status::IOError(
      "google::cloud::Status(PERMISSION_DENIED: Permanent error, with a last "
      "message of no storage.objects.get access "
      "error_info={reason=forbidden})");
  EXPECT_EQ(FindCode(denied), Code::kPermissionDenied);
  EXPECT_EQ(ErrorText(kUrl, "get", denied),
            "gs://bucket/key: get: PERMISSION_DENIED: no storage.objects.get "
            "access; check GOOGLE_APPLICATION_CREDENTIALS, and that the "
            "account may list, read and write objects of the bucket");
  const arrow::Status unknown =
      arrow::Status::IOError("google::cloud::Status(INTERNAL: trouble)");
  EXPECT_EQ(FindCode(unknown), Code::kUnavailable);
}

TEST(ArrowError, KnowsAzuresErrors) {
  const struct {
    const char* code;
    Code expected;
  } kCases[] = {
      {"BlobNotFound", Code::kNotFound},
      {"ContainerNotFound", Code::kNotFound},
      {"AuthorizationPermissionMismatch", Code::kPermissionDenied},
      {"AuthenticationFailed", Code::kPermissionDenied},
      {"ServerBusy", Code::kUnavailable},
  };
  for (const auto& one : kCases) {
    EXPECT_EQ(FindCode(arrow::Status::IOError(
                  std::string("failed. Azure Error: [") + one.code + "] said")),
              one.expected)
        << one.code;
  }
}

TEST(ArrowError, KnowsAzuresMissingCredentials) {
  const arrow::Status status = arrow::Status::IOError(
      "failed: N5Azure4Core11Credentials23AuthenticationExceptionE: Failed to "
      "get token from DefaultAzureCredential.");
  EXPECT_EQ(FindCode(status), Code::kPermissionDenied);
  EXPECT_NE(ErrorText("abfs://c/k", "open", status).find("AZURE_STORAGE_KEY"),
            std::string::npos);
}

TEST(ArrowError, KeepsSecretsAndLinesOut) {
  const std::string text = ErrorText(
      "abfss://c@a.dfs.core.windows.net/key", "get",
      arrow::Status::IOError("GetProperties failed for "
                             "'https://a.blob/c/key?sig=secret&se=1'.\n"
                             "Azure Error: [BlobNotFound] 404\r\nRequest"));
  EXPECT_EQ(text,
            "abfss://c@a.dfs.core.windows.net/key: get: GetProperties failed "
            "for 'https://a.blob/c/key'. Azure Error: [BlobNotFound] 404  "
            "Request");
}

TEST(ArrowError, KnowsErrnoAndArrowCodes) {
  EXPECT_EQ(FindCode(arrow::Status::OK()), Code::kOk);
  EXPECT_EQ(FindCode(arrow::internal::IOErrorFromErrno(ENOENT, "x")),
            Code::kNotFound);
  EXPECT_EQ(FindCode(arrow::internal::IOErrorFromErrno(ENOSPC, "x")),
            Code::kResourceExhausted);
  EXPECT_EQ(FindCode(Fail(Code::kDataLoss, "x")), Code::kDataLoss);
}

TEST(ArrowError, ExceptionsBecomeErrors) {
  const arrow::Status status = Guarded([]() -> arrow::Status {
    return arrow::Status::FromArgs(arrow::StatusCode::IOError,
                                   std::string().at(1));
  });
  EXPECT_EQ(FindCode(status), Code::kUnavailable);
  EXPECT_NE(status.message().find("basic_string::at"), std::string::npos);
}

}  // namespace
}  // namespace tessera
