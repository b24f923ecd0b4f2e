// SPDX-License-Identifier: Apache-2.0

#include "proto/error_detail.h"

#include <fstream>
#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

TEST(ErrorDetail, KeepsTheFirstReason) {
  const absl::Status status = WithReason(
      Annotate(WithReason(absl::NotFoundError("no"), ErrorReason::JOB_NOT_FOUND,
                          {{"name", "operations/x"}}),
               "get"),
      ErrorReason::CHECKPOINT_NOT_FOUND, {{"name", "other"}});
  EXPECT_EQ(ErrorReasonName(status), "JOB_NOT_FOUND");
  EXPECT_EQ(GetErrorInfo(status).metadata().at("name"), "operations/x");
  EXPECT_FALSE(GetErrorInfo(status).metadata().contains("path"));
  EXPECT_OK(WithReason(absl::OkStatus(), ErrorReason::JOB_NOT_FOUND));
}

TEST(ErrorDetail, NamesAFieldOnlyForInvalidArguments) {
  const absl::Status outer = BlameField(InvalidField("a.b", " is empty"), "a");
  EXPECT_THAT(outer,
              StatusIs(absl::StatusCode::kInvalidArgument, "a.b is empty"));
  EXPECT_EQ(BlamedField(outer), "a.b");
  EXPECT_EQ(GetErrorInfo(outer).metadata().at("field"), "a.b");
  const absl::Status missing = BlameField(absl::NotFoundError("no"), "a");
  EXPECT_EQ(BlamedField(missing), "");
  EXPECT_EQ(ErrorReasonName(missing), "");
  EXPECT_OK(BlameField(absl::OkStatus(), "a"));
}

TEST(ErrorDetail, ReplacesBytesThatAreNotText) {
  const absl::Status status =
      WithReason(absl::NotFoundError("no"), ErrorReason::JOB_NOT_FOUND,
                 {{"name", "\xFF"}});
  EXPECT_EQ(GetErrorInfo(status).metadata().at("name"), "\xEF\xBF\xBD");
}

TEST(ErrorDetail, IgnoresMalformedPayloads) {
  absl::Status status = absl::NotFoundError("no");
  status.SetPayload("type.googleapis.com/google.rpc.ErrorInfo",
                    absl::Cord("\xFF\xFF"));
  status.SetPayload("type.googleapis.com/google.rpc.BadRequest",
                    absl::Cord("\xFF\xFF"));
  EXPECT_EQ(ErrorReasonName(status), "");
  EXPECT_EQ(BlamedField(status), "");
}

// Programs that handle a reason look it up there.
TEST(ErrorDetail, ApiPageListsEveryReason) {
  std::ifstream file("proto/README.md");
  std::ostringstream text;
  text << file.rdbuf();
  for (int value = 1; value <= tessera::v1::ErrorReason_MAX; ++value) {
    EXPECT_THAT(text.str(),
                HasSubstr(absl::StrCat("| `",
                                       tessera::v1::ErrorReason_Name(
                                           static_cast<ErrorReason>(value)),
                                       "` |")));
  }
}

}  // namespace
}  // namespace dcp
