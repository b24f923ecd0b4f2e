// SPDX-License-Identifier: Apache-2.0
// Converts between absl::Status and gRPC's status; no other file knows both.
// Codes have the same numbers, and gRPC's INTERNAL is kept, except that a
// misfit (dcp/base/error_misfit.h) is FAILED_PRECONDITION. google.rpc's details
// are carried along: an ErrorInfo with the reason (error_detail.h), the error's
// place (dcp/base/error_place.h), side (error_side.h) and the options that the
// message names (option_name.h), a BadRequest, and a
// RetryInfo. Pure; any thread.
#ifndef PROTO_RPC_STATUS_H_
#define PROTO_RPC_STATUS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/base/error_place.h"
#include "grpcpp/support/status.h"

namespace google::rpc {
class Status;
}  // namespace google::rpc

namespace dcp {

// Says when ResourceExhausted or Unavailable should be tried again
// (google.rpc.RetryInfo).
absl::Status WithRetryAfter(absl::Status status, int64_t milliseconds);
// Milliseconds, or -1.
int64_t RetryAfterMs(const absl::Status& status);

// For a handler to return: shortens the message until it fits into HTTP/2
// trailers. The details are an ErrorInfo with the place (metadata "path",
// "file", "tensor", "offset", "side") and the fields of the options (metadata
// "options"); the BadRequest if there is one; and a RetryInfo, which
// Unavailable always has. If no reason was given, it is derived from code,
// place and side.
grpc::Status ToRpcStatus(const absl::Status& status);

// For a client: converts a received status. `call` ("ReadTensors") is put in
// front of the message. The reason, the place, the options, the retry delay and
// the misfit mark are restored.
absl::Status FromRpcStatus(const grpc::Status& status, absl::string_view call);

// The same for an error inside a message, such as an operation's.
google::rpc::Status ToStatusProto(const absl::Status& status);
absl::Status FromStatusProto(const google::rpc::Status& status);

}  // namespace dcp

#endif  // PROTO_RPC_STATUS_H_
