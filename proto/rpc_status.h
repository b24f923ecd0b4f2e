// SPDX-License-Identifier: Apache-2.0
// Converts between absl::Status and gRPC's status; no other file knows both.
// Codes have the same numbers, and gRPC's INTERNAL is kept, except that a
// misfit (dcp/base/error_misfit.h) is FAILED_PRECONDITION. The details of
// google.rpc are carried along: an ErrorInfo with the reason (error_detail.h),
// the place of the error (dcp/base/error_place.h) and its side (error_side.h),
// a BadRequest, and a RetryInfo. Pure; any thread.
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
int64_t RetryAfterOf(const absl::Status& status);

// For a handler to return: shortens the message to what fits into the trailers
// of HTTP/2. The details are an ErrorInfo with the place (metadata "path",
// "file", "tensor", "offset", "side"), whose reason is derived from code, place
// and side if none was given; the BadRequest if there is one; and a RetryInfo,
// which Unavailable always has.
grpc::Status ToRpcStatus(const absl::Status& status);

// For a client: converts a received status. `call` ("ReadTensors") is put in
// front of the message. The reason, the place, the retry delay and the mark of
// a misfit are restored.
absl::Status FromRpcStatus(const grpc::Status& status, absl::string_view call);

// The same for an error inside a message, such as that of an operation.
google::rpc::Status ToStatusProto(const absl::Status& status);
absl::Status FromStatusProto(const google::rpc::Status& status);

}  // namespace dcp

#endif  // PROTO_RPC_STATUS_H_
