// SPDX-License-Identifier: Apache-2.0
// An error's details for programs, in addition to code and message: a reason
// from tessera.v1.ErrorReason with metadata, and the request field that it
// refuses. They are kept in the Status as google.rpc.ErrorInfo and
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

// The domain in the google.rpc.ErrorInfo that errors carry.
inline constexpr absl::string_view kErrorDomain = "tessera";

// A reason's metadata: names in lower case, and short texts. rpc_status.h
// shortens metadata that does not fit into the trailers.
using ErrorMetadata =
    std::initializer_list<std::pair<absl::string_view, std::string>>;

// Adds a reason to `status`, unless it is OK or has one already: the code that
// saw the error first knows best.
absl::Status WithReason(absl::Status status, ErrorReason reason,
                        ErrorMetadata metadata = {});

// The name of the reason, from ErrorReason or from a newer server; empty if
// there is none.
std::string ErrorReasonName(const absl::Status& status);

// INVALID_ARGUMENT with the reason INVALID_FIELD. The message is the field's
// name followed by `problem`, such as " is 0: must be 1 or more".
absl::Status InvalidField(absl::string_view field, absl::string_view problem);
// If `status` is INVALID_ARGUMENT and does not name a field yet, blames `field`
// and adds `reason`.
absl::Status BlameField(absl::Status status, absl::string_view field,
                        ErrorReason reason = ErrorReason::INVALID_FIELD);
// The field that is to blame; empty if there is none.
std::string BlamedField(const absl::Status& status);

// The complete messages. Empty if there are none.
google::rpc::ErrorInfo GetErrorInfo(const absl::Status& status);
google::rpc::BadRequest GetBadRequest(const absl::Status& status);
void SetErrorInfo(absl::Status& status, const google::rpc::ErrorInfo& info);
void SetBadRequest(absl::Status& status, const google::rpc::BadRequest& bad);

}  // namespace dcp

#endif  // PROTO_ERROR_DETAIL_H_
