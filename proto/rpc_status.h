// The bridge between absl::Status and gRPC's: codes are the same numbers, what
// gRPC calls INTERNAL stays so, and the details of google.rpc travel along. The
// only file that knows both. Pure; any thread.
#ifndef PROTO_RPC_STATUS_H_
#define PROTO_RPC_STATUS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/support/status.h"

namespace dcp {

// Domain of the google.rpc.ErrorInfo that errors carry.
inline constexpr absl::string_view kErrorDomain = "tessera";

// Where an error belongs; empty fields are left out. Kept as payloads of the
// Status, so that Annotate and returns do not lose them.
struct ErrorPlace {
  std::string path;    // of the checkpoint
  std::string file;    // in it
  std::string tensor;  // or object
  std::string offset;  // in the file
};
absl::Status WithPlace(absl::Status status, const ErrorPlace& place);
ErrorPlace PlaceOf(const absl::Status& status);

// ResourceExhausted or Unavailable, to be tried again after so long
// (google.rpc.RetryInfo).
absl::Status WithRetryAfter(absl::Status status, int64_t milliseconds);

// What a handler returns: the message is shortened to what fits into the
// trailers of HTTP/2, the details are an ErrorInfo with the place (metadata
// "path", "file", "tensor", "offset", "side") and a RetryInfo if there is one.
grpc::Status ToRpcStatus(const absl::Status& status);

// What a client got. `call` ("ReadTensors") stands before the message. The
// place is there again, a retry-after too.
absl::Status FromRpcStatus(const grpc::Status& status, absl::string_view call);
// Milliseconds, or -1.
int64_t RetryAfterOf(const absl::Status& status);

}  // namespace dcp

#endif  // PROTO_RPC_STATUS_H_
