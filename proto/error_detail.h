// What an error says to programs beside its code and its message: a reason out
// of tessera.v1.ErrorReason with what it is about, and the field of the request
// that it refuses. Kept in the Status as google.rpc.ErrorInfo and
// google.rpc.BadRequest, which rpc_status.h sends and receives; Annotate and
// returns keep them. Pure; any thread.
#ifndef PROTO_ERROR_DETAIL_H_
#define PROTO_ERROR_DETAIL_H_

#include <initializer_list>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tessera/v1/error_reason.pb.h"

namespace google::rpc {
class BadRequest;
class ErrorInfo;
}  // namespace google::rpc

namespace dcp {

using tessera::v1::ErrorReason;

// Domain of the google.rpc.ErrorInfo that errors carry.
inline constexpr absl::string_view kErrorDomain = "tessera";

// Metadata of a reason: a name in lower case, and a short text. rpc_status.h
// cuts what is longer than fits into trailers.
using ErrorMetadata =
    std::initializer_list<std::pair<absl::string_view, std::string>>;

// `status` with its reason, unless it is OK or has one already: who saw the
// error first knows best.
absl::Status WithReason(absl::Status status, ErrorReason reason,
                        ErrorMetadata metadata = {});

// The name of the reason, of ErrorReason or of a newer server's; empty where
// there is none.
std::string ReasonOf(const absl::Status& status);
// Empty where there is none.
std::string ReasonMetadataOf(const absl::Status& status, absl::string_view key);

// INVALID_ARGUMENT, INVALID_FIELD: `problem` follows the name of the field in
// the message, " is 0: must be 1 or more".
absl::Status InvalidField(absl::string_view field, absl::string_view problem);
// `status`, if it is INVALID_ARGUMENT, as one that `field` is to blame for,
// with `reason`, unless it names a field already.
absl::Status BlameField(absl::Status status, absl::string_view field,
                        ErrorReason reason = ErrorReason::INVALID_FIELD);
// The field that is to blame; empty where there is none.
std::string FieldOf(const absl::Status& status);

// Whole, for rpc_status.cc. Empty messages where there are none.
google::rpc::ErrorInfo ErrorInfoOf(const absl::Status& status);
google::rpc::BadRequest BadRequestOf(const absl::Status& status);
void SetErrorInfo(absl::Status& status, const google::rpc::ErrorInfo& info);
void SetBadRequest(absl::Status& status, const google::rpc::BadRequest& bad);

}  // namespace dcp

#endif  // PROTO_ERROR_DETAIL_H_
