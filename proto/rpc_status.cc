// SPDX-License-Identifier: Apache-2.0

#include "proto/rpc_status.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/optional.h"
#include "dcp/base/error_misfit.h"
#include "dcp/base/error_side.h"
#include "dcp/base/option_name.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "proto/error_detail.h"
#include "proto/request_field.h"
#include "proto/utf8.h"

namespace dcp {
namespace {

constexpr absl::string_view kRetryPayloadType = "tessera/retry-after-ms";

// gRPC accepts at most 8 KiB of trailers by default, and silently ends the
// stream if there is more. The message travels twice: as "grpc-message", where
// anything except printable ASCII becomes %XX, and in the details, which are
// base64. This bounds the sum of both. The rest is for the place and for gRPC
// itself.
constexpr size_t kMaxMessageCost = 5120;
// The limit for one field in the place.
constexpr size_t kMaxPlaceBytes = 256;
// The limit for one metadata text or for the field that is to blame; then the
// limit for the number of metadata texts.
constexpr size_t kMaxDetailBytes = 128;
constexpr int kMaxDetails = 3;
// The key of OptionFields.
constexpr char kOptionsKey[] = "options";

// The delay if nobody says when to try again.
constexpr int64_t kRetryAfterMs = 1000;

// Nobody waits longer than this; also keeps a hostile server's number in range.
constexpr int64_t kMaxRetryAfterMs = int64_t{24} * 3600 * 1000;

// The cost of one byte in the trailers: see kMaxMessageCost.
size_t TrailerCost(char c) {
  const bool plain = c >= ' ' && c <= '~' && c != '%';
  return (plain ? 1 : 3) + 2;
}

std::string ShortMessage(absl::string_view message) {
  const std::string text = ToUtf8(message);
  size_t cost = 0;
  size_t length = 0;
  while (length < text.size() && cost <= kMaxMessageCost) {
    cost += TrailerCost(text[length]);
    ++length;
  }
  if (cost <= kMaxMessageCost) return text;
  const absl::string_view kept = Utf8Prefix(text, length - 1);
  return absl::StrCat(kept, "... (", text.size() - kept.size(), " bytes more)");
}

struct PlaceField {
  const char* key;
  std::string ErrorPlace::*text;
};

constexpr PlaceField kPlaceFields[] = {
    {"path", &ErrorPlace::path},
    {"file", &ErrorPlace::file},
    {"tensor", &ErrorPlace::tensor},
    {"offset", &ErrorPlace::offset},
};

const std::string& MisfitReason() {
  return tessera::v1::ErrorReason_Name(ErrorReason::MAPPING_DOES_NOT_FIT);
}

// The reason for an error to which no code gave one. Such an error comes from
// the checkpoint itself, from code that does not know the API.
std::string ImpliedReason(const absl::Status& status) {
  if (IsMisfit(status)) return MisfitReason();
  const ErrorPlace place = StatusPlace(status);
  const bool written = StatusSide(status) == ErrorSide::kDestination;
  const bool read = !written && place != ErrorPlace();
  const auto name = [](ErrorReason reason) {
    return tessera::v1::ErrorReason_Name(reason);
  };
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      if (!read) break;
      return name(place.file.empty() ? ErrorReason::CHECKPOINT_NOT_FOUND
                                     : ErrorReason::FILE_NOT_FOUND);
    case absl::StatusCode::kDataLoss:
      if (read) return name(ErrorReason::CHECKPOINT_DAMAGED);
      break;
    case absl::StatusCode::kUnavailable:
      if (read) return name(ErrorReason::CHECKPOINT_UNAVAILABLE);
      break;
    case absl::StatusCode::kUnimplemented:
      if (read) return name(ErrorReason::CHECKPOINT_UNSUPPORTED);
      break;
    case absl::StatusCode::kAlreadyExists:
      if (written) return name(ErrorReason::DESTINATION_EXISTS);
      break;
    case absl::StatusCode::kResourceExhausted:
      if (written) return name(ErrorReason::DESTINATION_FULL);
      break;
    default:
      break;
  }
  return absl::StatusCodeToString(status.code());
}

// The fields that set the options which the error names, separated by spaces;
// as many as fit.
std::string OptionFields(const absl::Status& status) {
  std::string fields;
  for (const std::string& option : NamedOptions(status)) {
    const std::string field = RequestField(option);
    if (field.empty() || fields.size() + field.size() >= kMaxDetailBytes) {
      continue;
    }
    absl::StrAppend(&fields, fields.empty() ? "" : " ", field);
  }
  return fields;
}

google::rpc::ErrorInfo MakeErrorInfo(const absl::Status& status) {
  const google::rpc::ErrorInfo given = GetErrorInfo(status);
  google::rpc::ErrorInfo info;
  info.set_reason(given.reason().empty() ? ImpliedReason(status)
                                         : given.reason());
  info.set_domain(std::string(kErrorDomain));
  auto& metadata = *info.mutable_metadata();
  for (const auto& [key, text] : given.metadata()) {
    if (metadata.size() == kMaxDetails) break;
    metadata[key] = std::string(Utf8Prefix(text, kMaxDetailBytes));
  }
  const ErrorPlace place = StatusPlace(status);
  for (const PlaceField& field : kPlaceFields) {
    const std::string text = ToUtf8(place.*field.text);
    if (text.empty()) continue;
    metadata[field.key] = std::string(Utf8Prefix(text, kMaxPlaceBytes));
  }
  const ErrorSide side = StatusSide(status);
  if (side != ErrorSide::kNone) {
    metadata["side"] = side == ErrorSide::kSource ? "source" : "destination";
  }
  const std::string options = OptionFields(status);
  if (!options.empty()) metadata[kOptionsKey] = options;
  return info;
}

absl::Status WithOptionFields(absl::Status status, absl::string_view fields) {
  std::vector<std::string> options;
  for (absl::string_view field :
       absl::StrSplit(fields, ' ', absl::SkipEmpty())) {
    options.push_back(RequestOption(field));
  }
  return WithOptions(std::move(status), options);
}

// Empty if no field is to blame.
google::rpc::BadRequest MakeBadRequest(const absl::Status& status) {
  const google::rpc::BadRequest given = GetBadRequest(status);
  google::rpc::BadRequest bad;
  if (given.field_violations_size() == 0) return bad;
  const auto& first = given.field_violations(0);
  auto& violation = *bad.add_field_violations();
  violation.set_field(std::string(Utf8Prefix(first.field(), kMaxDetailBytes)));
  violation.set_description(
      std::string(Utf8Prefix(first.description(), kMaxDetailBytes)));
  return bad;
}

absl::Status WithErrorInfo(absl::Status status,
                           const google::rpc::ErrorInfo& info) {
  if (info.domain() != kErrorDomain) return status;
  SetErrorInfo(status, info);
  if (info.reason() == MisfitReason()) status = WithMisfit(std::move(status));
  ErrorPlace place;
  for (const auto& [key, text] : info.metadata()) {
    for (const PlaceField& field : kPlaceFields) {
      if (key == field.key) place.*field.text = text;
    }
    if (key == kOptionsKey) {
      status = WithOptionFields(std::move(status), text);
    }
    if (key != "side") continue;
    status =
        WithSide(std::move(status), text == "source" ? ErrorSide::kSource
                                                     : ErrorSide::kDestination);
  }
  return WithPlace(std::move(status), place);
}

absl::Status WithRetryInfo(absl::Status status,
                           const google::rpc::RetryInfo& info) {
  const int64_t seconds = info.retry_delay().seconds();
  if (seconds < 0 || info.retry_delay().nanos() < 0) return status;
  const int64_t capped = std::min(seconds, kMaxRetryAfterMs / 1000);
  return WithRetryAfter(std::move(status),
                        capped * 1000 + info.retry_delay().nanos() / 1000000);
}

// -1: the same call would fail again.
int64_t RetryAfterToSend(const absl::Status& status) {
  const int64_t said = RetryAfterMs(status);
  return said < 0 && absl::IsUnavailable(status) ? kRetryAfterMs : said;
}

// For a client, DATA_LOSS means damage. A misfit is not damage.
absl::StatusCode CodeToSend(const absl::Status& status) {
  return IsMisfit(status) ? absl::StatusCode::kFailedPrecondition
                          : status.code();
}

// Only called for errors, so that a code of 0 is the sender's mistake.
absl::StatusCode ToStatusCode(int code) {
  return static_cast<absl::StatusCode>(
      code == 0 ? static_cast<int>(absl::StatusCode::kUnknown) : code);
}

}  // namespace

absl::Status WithRetryAfter(absl::Status status, int64_t milliseconds) {
  if (status.ok()) return status;
  const int64_t capped = std::clamp<int64_t>(milliseconds, 0, kMaxRetryAfterMs);
  status.SetPayload(kRetryPayloadType, absl::Cord(absl::StrCat(capped)));
  return status;
}

int64_t RetryAfterMs(const absl::Status& status) {
  const absl::optional<absl::Cord> text = status.GetPayload(kRetryPayloadType);
  int64_t milliseconds = -1;
  if (!text.has_value() ||
      !absl::SimpleAtoi(std::string(*text), &milliseconds)) {
    return -1;
  }
  return milliseconds;
}

google::rpc::Status ToStatusProto(const absl::Status& status) {
  google::rpc::Status proto;
  proto.set_code(static_cast<int>(CodeToSend(status)));
  if (status.ok()) return proto;
  proto.set_message(ShortMessage(status.message()));
  proto.add_details()->PackFrom(MakeErrorInfo(status));
  const google::rpc::BadRequest bad = MakeBadRequest(status);
  if (bad.field_violations_size() > 0) proto.add_details()->PackFrom(bad);
  const int64_t retry_ms = RetryAfterToSend(status);
  if (retry_ms >= 0) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(retry_ms / 1000);
    retry.mutable_retry_delay()->set_nanos(
        static_cast<int32_t>(retry_ms % 1000 * 1000000));
    proto.add_details()->PackFrom(retry);
  }
  return proto;
}

absl::Status FromStatusProto(const google::rpc::Status& proto) {
  if (proto.code() == 0) return absl::OkStatus();
  absl::Status status(ToStatusCode(proto.code()), proto.message());
  for (const google::protobuf::Any& detail : proto.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::BadRequest bad;
    google::rpc::RetryInfo retry;
    if (detail.UnpackTo(&info)) {
      status = WithErrorInfo(std::move(status), info);
    } else if (detail.UnpackTo(&bad)) {
      SetBadRequest(status, bad);
    } else if (detail.UnpackTo(&retry)) {
      status = WithRetryInfo(std::move(status), retry);
    }
  }
  return status;
}

grpc::Status ToRpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const google::rpc::Status proto = ToStatusProto(status);
  return grpc::Status(static_cast<grpc::StatusCode>(proto.code()),
                      proto.message(), proto.SerializeAsString());
}

absl::Status FromRpcStatus(const grpc::Status& status, absl::string_view call) {
  if (status.ok()) return absl::OkStatus();
  google::rpc::Status proto;
  // Details are optional: those that cannot be parsed are dropped. Code and
  // message are taken from gRPC's own status.
  if (!proto.ParseFromString(status.error_details())) proto.Clear();
  proto.set_code(static_cast<int>(ToStatusCode(status.error_code())));
  proto.set_message(absl::StrCat(call, ": ", status.error_message()));
  return FromStatusProto(proto);
}

}  // namespace dcp
