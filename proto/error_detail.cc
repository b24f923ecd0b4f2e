// SPDX-License-Identifier: Apache-2.0

#include "proto/error_detail.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "google/protobuf/message_lite.h"
#include "google/rpc/error_details.pb.h"
#include "proto/utf8.h"

namespace dcp {
namespace {

constexpr absl::string_view kInfoType =
    "type.googleapis.com/google.rpc.ErrorInfo";
constexpr absl::string_view kBadRequestType =
    "type.googleapis.com/google.rpc.BadRequest";

void Keep(absl::Status& status, absl::string_view type,
          const google::protobuf::MessageLite& message) {
  status.SetPayload(type, absl::Cord(message.SerializeAsString()));
}

template <typename Message>
Message Kept(const absl::Status& status, absl::string_view type) {
  Message message;
  const absl::optional<absl::Cord> bytes = status.GetPayload(type);
  if (bytes.has_value() && !message.ParseFromString(std::string(*bytes))) {
    message.Clear();
  }
  return message;
}

}  // namespace

absl::Status WithReason(absl::Status status, ErrorReason reason,
                        ErrorMetadata metadata) {
  if (status.ok() || !ErrorReasonName(status).empty()) return status;
  google::rpc::ErrorInfo info;
  info.set_reason(tessera::v1::ErrorReason_Name(reason));
  info.set_domain(std::string(kErrorDomain));
  for (const auto& [key, value] : metadata) {
    (*info.mutable_metadata())[std::string(key)] = ToUtf8(value);
  }
  SetErrorInfo(status, info);
  return status;
}

std::string ErrorReasonName(const absl::Status& status) {
  return GetErrorInfo(status).reason();
}

absl::Status InvalidField(absl::string_view field, absl::string_view problem) {
  return BlameField(absl::InvalidArgumentError(absl::StrCat(field, problem)),
                    field);
}

absl::Status BlameField(absl::Status status, absl::string_view field,
                        ErrorReason reason) {
  if (!absl::IsInvalidArgument(status) || !BlamedField(status).empty()) {
    return status;
  }
  google::rpc::BadRequest bad;
  google::rpc::BadRequest::FieldViolation& violation =
      *bad.add_field_violations();
  violation.set_field(ToUtf8(field));
  violation.set_description(ToUtf8(status.message()));
  SetBadRequest(status, bad);
  return WithReason(std::move(status), reason, {{"field", std::string(field)}});
}

std::string BlamedField(const absl::Status& status) {
  const google::rpc::BadRequest bad = GetBadRequest(status);
  return bad.field_violations_size() == 0 ? ""
                                          : bad.field_violations(0).field();
}

google::rpc::ErrorInfo GetErrorInfo(const absl::Status& status) {
  return Kept<google::rpc::ErrorInfo>(status, kInfoType);
}

google::rpc::BadRequest GetBadRequest(const absl::Status& status) {
  return Kept<google::rpc::BadRequest>(status, kBadRequestType);
}

void SetErrorInfo(absl::Status& status, const google::rpc::ErrorInfo& info) {
  Keep(status, kInfoType, info);
}

void SetBadRequest(absl::Status& status, const google::rpc::BadRequest& bad) {
  Keep(status, kBadRequestType, bad);
}

}  // namespace dcp
