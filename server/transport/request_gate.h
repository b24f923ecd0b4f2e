// SPDX-License-Identifier: Apache-2.0
// RequestGate: decides whether a call's request is parsed. gRPC 1.51 parses a
// request when it is complete, before it calls any service. It has no hook in
// between, but it first makes the call's interceptor, on the same thread. The
// linker therefore redirects the protobuf function by which gRPC parses (--wrap
// in BUILD.bazel) to the .cc file, which asks that thread's gate. So a request
// to any method is parsed only if the caller has a token, memory for the parsed
// message, and has not sent too many large requests recently: gRPC has few
// threads, which all clients share.
//
// ReadTensors parses the requests itself, in memory that it waits for.
#ifndef SERVER_TRANSPORT_REQUEST_GATE_H_
#define SERVER_TRANSPORT_REQUEST_GATE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/zero_copy_stream.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/server_context.h"
#include "server/access/access.h"
#include "server/access/admission.h"
#include "server/memory/call_memory.h"
#include "server/memory/client_account.h"
#include "server/memory/memory_budget.h"

namespace dcp::server {

// A request that takes less than this when parsed is not counted in the memory
// budget, so that it need not wait for streams and jobs.
inline constexpr uint64_t kUncountedRequestBytes = uint64_t{64} << 10;
// A service's copies of a request may take as much as the request again.
inline constexpr uint64_t kRequestCopies = 2;

// A request may take this many times max-request when it is parsed. Two bytes
// of empty messages take a hundred.
inline constexpr uint64_t kMaxRequestExpansion = 16;

// The parts that all of a server's calls need; outlives them.
struct RequestGateContext {
  Admission& admission;
  MemoryBudget& budget;
  uint64_t max_request_bytes = 0;
};

// The gate of one call. Lives as long as the call.
class RequestGate {
 public:
  // Opens the gate for requests on this thread if the call has a token.
  RequestGate(const RequestGateContext& context,
              const grpc::ServerContextBase& call);
  ~RequestGate() { Close(); }
  RequestGate(const RequestGate&) = delete;
  RequestGate& operator=(const RequestGate&) = delete;

  // Ends the thread's relation to this gate. To be called on the thread that
  // made it, after gRPC has parsed the request.
  void Close();

  // Parses the request if it may be parsed. Returns false if it may not, or if
  // it is malformed.
  bool Parse(google::protobuf::MessageLite& request,
             google::protobuf::io::ZeroCopyInputStream& bytes);

  // Why the request was not parsed; OK if it was, or if it was malformed.
  const absl::Status& refusal() const { return refusal_; }
  // Null if the call has no valid token. Lives as long as the Access.
  const Client* client() const { return client_; }

 private:
  // Whether there is enough time and memory to parse `wire` as such a message.
  absl::Status Count(const google::protobuf::Descriptor& type,
                     absl::string_view wire);
  absl::Status Reserve(std::shared_ptr<ClientAccount> account, uint64_t bytes);

  const RequestGateContext& context_;
  const grpc::ServerContextBase& call_;
  const Client* client_ = nullptr;
  absl::Status refusal_;
  CallMemory memory_;
};

}  // namespace dcp::server

#endif  // SERVER_TRANSPORT_REQUEST_GATE_H_
