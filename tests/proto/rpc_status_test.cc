// SPDX-License-Identifier: Apache-2.0

#include "proto/rpc_status.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/error_misfit.h"
#include "dcp/base/error_side.h"
#include "dcp/base/option_name.h"
#include "google/longrunning/operations_proto.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "proto/error_detail.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::google::longrunning::GetOperationRequest;
using ::google::longrunning::Operation;
using ::google::longrunning::Operations;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Answers every call with one status, over a socket.
class FailingServer final : public Operations::Service {
 public:
  explicit FailingServer(absl::Status status) : status_(std::move(status)) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    stub_ = Operations::NewStub(grpc::CreateChannel(
        absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  }

  grpc::Status GetOperation(grpc::ServerContext*, const GetOperationRequest*,
                            Operation*) override {
    return ToRpcStatus(status_);
  }

  // Returns the status that a client gets.
  absl::Status Call() {
    grpc::ClientContext context;
    Operation operation;
    return FromRpcStatus(stub_->GetOperation(&context, {}, &operation), "Get");
  }

 private:
  const absl::Status status_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Operations::Stub> stub_;
};

absl::Status OverTheWire(const absl::Status& status) {
  return FailingServer(status).Call();
}

TEST(RpcStatus, OkIsOk) {
  EXPECT_TRUE(ToRpcStatus(absl::OkStatus()).ok());
  EXPECT_OK(FromRpcStatus(grpc::Status::OK, "Get"));
  EXPECT_EQ(ToStatusProto(absl::OkStatus()).code(), 0);
  EXPECT_OK(FromStatusProto(google::rpc::Status()));
}

TEST(RpcStatus, EveryCodeArrivesUnchanged) {
  for (int code = 1; code <= 16; ++code) {
    const auto absl_code = static_cast<absl::StatusCode>(code);
    EXPECT_THAT(OverTheWire(absl::Status(absl_code, "why")),
                StatusIs(absl_code, "Get: why"));
  }
}

TEST(RpcStatus, PlaceSideAndRetryArrive) {
  const ErrorPlace place{.path = "/data/a b",
                         .file = "gr\xC3\xBC.pt",
                         .tensor = "w",
                         .offset = "7"};
  absl::Status status = absl::UnavailableError("not now");
  status = WithPlace(std::move(status), place);
  status = WithSide(std::move(status), ErrorSide::kDestination);
  status = WithRetryAfter(std::move(status), 1750);
  const absl::Status got = OverTheWire(status);
  EXPECT_EQ(StatusPlace(got), place);
  EXPECT_EQ(StatusSide(got), ErrorSide::kDestination);
  EXPECT_EQ(RetryAfterMs(got), 1750);
}

// DATA_LOSS would say that the checkpoint is damaged.
TEST(RpcStatus, MisfitIsNotDamage) {
  const absl::Status got = OverTheWire(WithPlace(
      WithMisfit(absl::DataLossError("x.q is missing")), {.path = "/a"}));
  EXPECT_THAT(got, StatusIs(absl::StatusCode::kFailedPrecondition,
                            "Get: x.q is missing"));
  EXPECT_EQ(ErrorReasonName(got), "MAPPING_DOES_NOT_FIT");
  EXPECT_EQ(StatusPlace(got).path, "/a");
  EXPECT_TRUE(IsMisfit(got));
  // As a job's record keeps it, and sent again.
  const absl::Status again = FromStatusProto(ToStatusProto(got));
  EXPECT_EQ(ErrorReasonName(again), "MAPPING_DOES_NOT_FIT");
  EXPECT_TRUE(IsMisfit(again));
  EXPECT_FALSE(IsMisfit(OverTheWire(absl::FailedPreconditionError("moved"))));
}

TEST(RpcStatus, PlainErrorsHaveNoDetails) {
  const absl::Status got = OverTheWire(absl::NotFoundError("no"));
  EXPECT_EQ(StatusPlace(got), ErrorPlace());
  EXPECT_EQ(StatusSide(got), ErrorSide::kNone);
  EXPECT_EQ(RetryAfterMs(got), -1);
}

TEST(RpcStatus, ErrorInfoNamesDomainAndReason) {
  const google::rpc::Status proto = ToStatusProto(absl::DataLossError("torn"));
  ASSERT_EQ(proto.details_size(), 1);
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(proto.details(0).UnpackTo(&info));
  EXPECT_EQ(info.domain(), kErrorDomain);
  EXPECT_EQ(info.reason(), "DATA_LOSS");
}

TEST(RpcStatus, ReasonMetadataAndFieldArrive) {
  const absl::Status status = WithReason(
      absl::ResourceExhaustedError("full"), ErrorReason::LIMIT_REACHED,
      {{"limit", "max-streams"}, {"value", "7"}});
  const absl::Status got = OverTheWire(status);
  EXPECT_EQ(ErrorReasonName(got), "LIMIT_REACHED");
  EXPECT_EQ(GetErrorInfo(got).metadata().at("limit"), "max-streams");
  EXPECT_EQ(GetErrorInfo(got).metadata().at("value"), "7");
  EXPECT_EQ(BlamedField(got), "");
  const absl::Status invalid =
      OverTheWire(InvalidField("mesh.axes[1].size", " is 0: must be 1"));
  EXPECT_THAT(invalid, StatusIs(absl::StatusCode::kInvalidArgument,
                                "Get: mesh.axes[1].size is 0: must be 1"));
  EXPECT_EQ(ErrorReasonName(invalid), "INVALID_FIELD");
  EXPECT_EQ(BlamedField(invalid), "mesh.axes[1].size");
}

TEST(RpcStatus, SendsOptionsAsRequestFields) {
  const absl::Status status = OptionError(
      absl::StatusCode::kAlreadyExists, "/x exists; ", OptionName{"overwrite"},
      " replaces it, ", OptionName{"decode"}, " does not, and ",
      OptionName{"copy_config", "false"}, " helps");
  const absl::Status got = OverTheWire(status);
  EXPECT_EQ(got.message(), absl::StrCat("Get: ", status.message()));
  EXPECT_EQ(GetErrorInfo(got).metadata().at("options"),
            "destination.overwrite no_copy_config");
  EXPECT_THAT(NamedOptions(got), ElementsAre("overwrite", "copy_config"));
  EXPECT_THAT(NamedOptions(OverTheWire(absl::NotFoundError("no"))), IsEmpty());
}

// For errors from checkpoint code, which does not know the API.
TEST(RpcStatus, DerivesTheReasonFromPlaceAndSide) {
  const auto reason = [](absl::StatusCode code, const ErrorPlace& place,
                         ErrorSide side = ErrorSide::kNone) {
    return ErrorReasonName(FromStatusProto(ToStatusProto(
        WithSide(WithPlace(absl::Status(code, "why"), place), side))));
  };
  using Code = absl::StatusCode;
  const ErrorPlace path{.path = "/a"};
  EXPECT_EQ(reason(Code::kNotFound, path), "CHECKPOINT_NOT_FOUND");
  EXPECT_EQ(reason(Code::kNotFound, {.path = "/a", .file = "b"}),
            "FILE_NOT_FOUND");
  EXPECT_EQ(reason(Code::kDataLoss, path), "CHECKPOINT_DAMAGED");
  EXPECT_EQ(reason(Code::kUnavailable, path), "CHECKPOINT_UNAVAILABLE");
  EXPECT_EQ(reason(Code::kUnimplemented, path), "CHECKPOINT_UNSUPPORTED");
  EXPECT_EQ(reason(Code::kAlreadyExists, path, ErrorSide::kDestination),
            "DESTINATION_EXISTS");
  EXPECT_EQ(reason(Code::kResourceExhausted, path, ErrorSide::kDestination),
            "DESTINATION_FULL");
  EXPECT_EQ(reason(Code::kNotFound, path, ErrorSide::kDestination),
            "NOT_FOUND");
  EXPECT_EQ(reason(Code::kUnknown, path), "UNKNOWN");
}

// Only this code means "try again" by itself.
TEST(RpcStatus, UnavailableAlwaysHasARetryDelay) {
  for (int code = 1; code <= 16; ++code) {
    const auto absl_code = static_cast<absl::StatusCode>(code);
    const absl::Status got = OverTheWire(absl::Status(absl_code, "why"));
    EXPECT_EQ(RetryAfterMs(got) >= 0,
              absl_code == absl::StatusCode::kUnavailable)
        << code;
  }
}

// gRPC would end a call with longer trailers with an error by itself.
TEST(RpcStatus, LongestErrorFitsIntoTrailers) {
  for (const char* letter : {"x", "%", "\xE2\x82\xAC", "\xFF", "\n"}) {
    std::string text;
    while (text.size() < 100'000) absl::StrAppend(&text, letter);
    absl::Status status = absl::DataLossError(text);
    SetBadRequest(status, GetBadRequest(BlameField(
                              absl::InvalidArgumentError(text), text)));
    status = WithReason(status, ErrorReason::JOB_RESTARTED_TOO_OFTEN,
                        {{"limit", text}, {"value", text}, {"name", text}});
    status = WithOptions(status,
                         {"optimizer_in_model_order", "low_precision_weights",
                          "allow_missing", "parts", "to", "overwrite"});
    status = WithRetryAfter(
        WithPlace(status,
                  {.path = text, .file = text, .tensor = text, .offset = text}),
        86'399'999);
    const absl::Status got = OverTheWire(status);
    EXPECT_THAT(
        got, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("bytes more)")));
    EXPECT_GT(got.message().size(), 500) << letter;
    EXPECT_EQ(RetryAfterMs(got), 86'399'999);
    EXPECT_GE(StatusPlace(got).tensor.size(), 250);
    EXPECT_GE(GetErrorInfo(got).metadata().at("limit").size(), 120);
    EXPECT_GE(BlamedField(got).size(), 120);
  }
}

TEST(RpcStatus, ShortMessagesAreNotCut) {
  const std::string text(1500, 'x');
  EXPECT_THAT(OverTheWire(absl::DataLossError(text)),
              StatusIs(absl::StatusCode::kDataLoss, "Get: " + text));
}

TEST(RpcStatus, LeavesOutHostileDetails) {
  google::rpc::Status proto;
  proto.set_code(0);
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(-5);
  proto.add_details()->PackFrom(retry);
  google::rpc::ErrorInfo info;
  info.set_domain("another");
  (*info.mutable_metadata())["path"] = "/x";
  proto.add_details()->PackFrom(info);
  for (const std::string& details :
       {std::string("\xFF\xFF\xFF"), proto.SerializeAsString()}) {
    const absl::Status status = FromRpcStatus(
        grpc::Status(grpc::StatusCode::NOT_FOUND, "no", details), "Get");
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, "Get: no"));
    EXPECT_EQ(StatusPlace(status), ErrorPlace());
    EXPECT_EQ(RetryAfterMs(status), -1);
  }
}

TEST(RpcStatus, RetryAfterIsBounded) {
  google::rpc::Status proto;
  proto.set_code(14);
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(INT64_MAX);
  proto.add_details()->PackFrom(retry);
  EXPECT_EQ(RetryAfterMs(FromStatusProto(proto)), int64_t{24} * 3600 * 1000);
  EXPECT_EQ(RetryAfterMs(WithRetryAfter(absl::UnavailableError(""), -3)), 0);
  EXPECT_OK(WithRetryAfter(absl::OkStatus(), 3));
}

TEST(RpcStatus, OperationErrorsComeBack) {
  const absl::Status status =
      WithPlace(absl::DataLossError("torn"), {.tensor = "w"});
  const absl::Status got = FromStatusProto(ToStatusProto(status));
  EXPECT_THAT(got, StatusIs(absl::StatusCode::kDataLoss, StartsWith("torn")));
  EXPECT_EQ(StatusPlace(got).tensor, "w");
}

}  // namespace
}  // namespace dcp
