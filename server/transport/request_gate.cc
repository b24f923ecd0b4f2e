// SPDX-License-Identifier: Apache-2.0
// Opens and closes the gate, and estimates a request's memory before parsing.
//
// Tested by tests/server/server_limits_test.cc.
#include "server/transport/request_gate.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "dcp/base/status.h"
#include "dcp/base/steady_time.h"
#include "google/protobuf/message.h"
#include "proto/error_detail.h"
#include "proto/rpc_status.h"
#include "server/memory/client_account.h"
#include "server/memory/memory_request.h"
#include "server/memory/parsed_size.h"
#include "server/process/refusal.h"

namespace dcp::server {
namespace {

// So few bytes take less than kUncountedRequestBytes when they are parsed.
constexpr size_t kUncountedWireBytes = 256;

// The gate of the call that gRPC receives on this thread.
thread_local RequestGate* current_gate = nullptr;

std::string ReadAll(google::protobuf::io::ZeroCopyInputStream& bytes) {
  std::string all;
  const void* data = nullptr;
  int size = 0;
  while (bytes.Next(&data, &size)) {
    all.append(static_cast<const char*>(data), static_cast<size_t>(size));
  }
  return all;
}

}  // namespace

RequestGate::RequestGate(const RequestGateContext& context,
                         const grpc::ServerContextBase& call)
    : context_(context), call_(call) {
  const absl::StatusOr<const Client*> client =
      context.admission.access().Authenticate(call);
  if (client.ok()) client_ = *client;
  refusal_ = client.status();
  current_gate = this;
}

void RequestGate::Close() {
  if (current_gate == this) current_gate = nullptr;
}

bool RequestGate::Parse(google::protobuf::MessageLite& request,
                        google::protobuf::io::ZeroCopyInputStream& bytes) {
  Close();
  if (!refusal_.ok()) return false;
  const std::string all = ReadAll(bytes);
  const auto& message = static_cast<const google::protobuf::Message&>(request);
  if (all.size() > kUncountedWireBytes) {
    refusal_ = Count(*message.GetDescriptor(), all);
  }
  return refusal_.ok() && request.ParseFromString(all);
}

absl::Status RequestGate::Count(const google::protobuf::Descriptor& type,
                                absl::string_view wire) {
  // The service counts the call.
  std::shared_ptr<ClientAccount> account = context_.admission.AccountFor(
      context_.admission.access().has_tokens() ? client_->name()
                                               : PeerAddress(call_.peer()),
      SteadyNow());
  DCP_RETURN_IF_ERROR(account->CheckParsing(SteadyNow()));
  const uint64_t most = kMaxRequestExpansion * context_.max_request_bytes;
  const uint64_t size = wire.size() + ParsedSize(type, wire, most);
  account->CountParsing(SteadyNow(), std::min(size, most));
  if (size > most) {
    return RequestTooLarge(
        "max-request", context_.max_request_bytes,
        absl::StrCat("the request of ", wire.size(), " bytes takes more than ",
                     most, " bytes of memory, which is ", kMaxRequestExpansion,
                     " times max-request"));
  }
  if (kRequestCopies * size < kUncountedRequestBytes) return absl::OkStatus();
  return Reserve(std::move(account), kRequestCopies * size);
}

// Does not wait, because it is called on a thread of gRPC.
absl::Status RequestGate::Reserve(std::shared_ptr<ClientAccount> account,
                                  uint64_t bytes) {
  struct Answer {
    absl::Mutex mutex;
    std::optional<absl::StatusOr<CallMemory>> memory ABSL_GUARDED_BY(mutex);
  };
  // Owners: this function, and the request for memory.
  const auto answer = std::make_shared<Answer>();
  const std::shared_ptr<CallMemoryRequest> asked = CallMemoryRequest::Ask(
      std::move(account), context_.budget, bytes, kMaxMemoryWait,
      [answer](absl::StatusOr<CallMemory> memory) {
        absl::MutexLock lock(&answer->mutex);
        answer->memory = std::move(memory);
      });
  asked->Cancel();
  absl::MutexLock lock(&answer->mutex);
  if (!answer->memory.has_value()) {
    return WithReason(
        WithRetryAfter(absl::UnavailableError(absl::StrCat(
                           "the memory of the server is in use: the request "
                           "takes ",
                           bytes, " bytes")),
                       kRetryAfterMs),
        ErrorReason::MEMORY_IN_USE, {{"value", absl::StrCat(bytes)}});
  }
  DCP_RETURN_IF_ERROR(answer->memory->status());
  memory_ = **std::move(answer->memory);
  return absl::OkStatus();
}

}  // namespace dcp::server

// The linker prescribes the name: MessageLite::ParseFromZeroCopyStream.
extern "C" {
bool __real__ZN6google8protobuf11MessageLite23ParseFromZeroCopyStreamEPNS0_2io19ZeroCopyInputStreamE(
    google::protobuf::MessageLite* message,
    google::protobuf::io::ZeroCopyInputStream* bytes);
bool __wrap__ZN6google8protobuf11MessageLite23ParseFromZeroCopyStreamEPNS0_2io19ZeroCopyInputStreamE(
    google::protobuf::MessageLite* message,
    google::protobuf::io::ZeroCopyInputStream* bytes);
}

ABSL_ATTRIBUTE_NOINLINE bool
__wrap__ZN6google8protobuf11MessageLite23ParseFromZeroCopyStreamEPNS0_2io19ZeroCopyInputStreamE(
    google::protobuf::MessageLite* message,
    google::protobuf::io::ZeroCopyInputStream* bytes) {
  dcp::server::RequestGate* const gate = dcp::server::current_gate;
  if (gate != nullptr) return gate->Parse(*message, *bytes);
  return __real__ZN6google8protobuf11MessageLite23ParseFromZeroCopyStreamEPNS0_2io19ZeroCopyInputStreamE(
      message, bytes);
}
