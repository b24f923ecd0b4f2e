// SPDX-License-Identifier: Apache-2.0

#include "server/transport/call_log.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "dcp/base/check.h"
#include "dcp/base/log.h"
#include "dcp/base/steady_time.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "grpc/grpc.h"
#include "grpcpp/server_context.h"
#include "proto/rpc_status.h"
#include "server/process/log_text.h"
#include "server/transport/guarded_connections.h"
#include "server/transport/service_health.h"
#include "tessera/v1/checkpoint_service.pb.h"

namespace dcp::server {
namespace {

using google::protobuf::FieldDescriptor;
using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::ServerRpcInfo;

constexpr const char* kLoggedServices[] = {kCheckpointServiceName,
                                           kJobServiceName, kOperationsName};

constexpr char kCallIdKey[] = "tessera-call-id";

// gRPC's own services, which anybody may call.
bool IsHealthOrReflection(absl::string_view method) {
  return absl::StartsWith(method, "/grpc.health.") ||
         absl::StartsWith(method, "/grpc.reflection.");
}

// The fields of a method's request that name checkpoints for the log line. None
// for tensor streams and jobs, which write log lines themselves.
std::vector<const FieldDescriptor*> SourceFields(
    const google::protobuf::MethodDescriptor& method) {
  const google::protobuf::Descriptor& request = *method.input_type();
  std::vector<const FieldDescriptor*> fields;
  if (method.service()->full_name() != kCheckpointServiceName ||
      &request == tessera::v1::ReadTensorsRequest::descriptor()) {
    return fields;
  }
  for (int i = 0; i < request.field_count(); ++i) {
    if (request.field(i)->message_type() == tessera::v1::Source::descriptor()) {
      fields.push_back(request.field(i));
    }
  }
  return fields;
}

// " path=/a", and " path_b=/b" for a second field `b`. If there are fields,
// `request` is the message that has them, or null.
std::string PathsText(const std::vector<const FieldDescriptor*>& fields,
                      const void* request) {
  if (fields.empty() || request == nullptr) return "";
  const auto& message = *static_cast<const google::protobuf::Message*>(request);
  std::string text;
  for (const FieldDescriptor* field : fields) {
    const auto& source = static_cast<const tessera::v1::Source&>(
        message.GetReflection()->GetMessage(message, field));
    absl::StrAppend(&text, " path",
                    text.empty() ? "" : absl::StrCat("_", field->name()), "=",
                    LogText(source.path()));
  }
  return text;
}

// Errors that a client can cause at no cost.
bool IsRefused(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kCancelled:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string CallId(const grpc::ServerContextBase& context) {
  const auto [begin, end] = context.client_metadata().equal_range(kCallIdKey);
  if (begin == end) return "";
  return std::string(begin->second.data(), begin->second.size());
}

// Lives as long as the call in gRPC.
class CallLog::Call : public grpc::experimental::Interceptor {
 public:
  Call(CallLog& log, ServerRpcInfo& info)
      : log_(log),
        method_(log.FindMethod(info.method())),
        core_(info.server_context()->c_call()),
        peer_(info.server_context()->peer()),
        id_(absl::StrCat(++log.num_begun_)),
        begin_(SteadyNow()) {
    if (log.gate_ != nullptr) gate_.emplace(*log.gate_, *info.server_context());
    if (ClientOfCall() != nullptr) counted_ = CountClientCall(peer_);
    ++ProcessCallLoad().num_calls;
    absl::MutexLock lock(&log_.mutex_);
    ++log_.num_calls_;
    log_.calls_.insert(this);
  }

  // Whether it continues although the client has no rights any more.
  bool IsRevoked() const {
    return gate_.has_value() &&
           (gate_->client() == nullptr || gate_->client()->is_revoked());
  }

  // gRPC's call, which lives until the status is sent.
  grpc_call* core() const { return core_; }

  ~Call() override {
    const std::string code = absl::StatusCodeToString(code_);
    log_.metrics_.CountRequest(method_.name, code);
    if (const Client* const client = ClientOfCall()) {
      log_.metrics_.CountClientRequest(client->name(), code);
    }
    log_.metrics_.ObserveRequest(method_.name, SteadyNow() - begin_);
    if (!IsRefused(code_) || log_.refused_log_.Allow()) WriteLine(code);
    --ProcessCallLoad().num_calls;
    absl::MutexLock lock(&log_.mutex_);
    log_.calls_.erase(this);
    --log_.num_calls_;
    log_.changed_.SignalAll();
  }

  void Intercept(
      grpc::experimental::InterceptorBatchMethods* methods) override {
    // The first time, on the thread that has received the request.
    if (gate_.has_value()) gate_->Close();
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      // The only place where the call's handler finds it. A client cannot
      // choose it.
      auto& metadata = *methods->GetRecvInitialMetadata();
      metadata.erase(kCallIdKey);
      metadata.emplace(kCallIdKey, id_);
    }
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::POST_RECV_MESSAGE)) {
      paths_ = PathsText(method_.source_fields, methods->GetRecvMessage());
    }
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::PRE_SEND_STATUS)) {
      {
        absl::MutexLock lock(&log_.mutex_);
        log_.calls_.erase(this);
      }
      if (WasNotParsed(methods->GetSendStatus())) {
        methods->ModifySendStatus(WhyNotParsed());
      }
      const grpc::Status status = methods->GetSendStatus();
      code_ = static_cast<absl::StatusCode>(status.error_code());
      message_ = status.error_message();
    }
    methods->Proceed();
  }

 private:
  // When gRPC 1.51 cannot parse the request of an existing method, it answers
  // UNIMPLEMENTED without a message; our services never do.
  bool WasNotParsed(const grpc::Status& status) const {
    return method_.exists &&
           status.error_code() == grpc::StatusCode::UNIMPLEMENTED &&
           status.error_message().empty();
  }

  grpc::Status WhyNotParsed() const {
    if (gate_.has_value() && !gate_->refusal().ok()) {
      return ToRpcStatus(gate_->refusal());
    }
    return {grpc::StatusCode::INVALID_ARGUMENT,
            "the request is not a message that this method takes"};
  }

  // Null if it is unknown.
  const Client* ClientOfCall() const {
    return gate_.has_value() ? gate_->client() : nullptr;
  }

  void WriteLine(absl::string_view code) const {
    const Client* const client = ClientOfCall();
    DCP_LOG(kInfo) << "event=call call=" << id_ << " method=" << method_.name
                   << " code=" << code << " seconds="
                   << absl::StrFormat(
                          "%.3f", absl::ToDoubleSeconds(SteadyNow() - begin_))
                   << " peer=" << LogText(peer_)
                   << (client == nullptr ? "" : " client=")
                   << (client == nullptr ? "" : LogText(client->name()))
                   << paths_ << (message_.empty() ? "" : " message=")
                   << (message_.empty() ? "" : LogText(message_));
  }

  CallLog& log_;
  const Method& method_;
  grpc_call* const core_;
  const std::string peer_;
  const std::string id_;
  const absl::Duration begin_;
  std::optional<RequestGate> gate_;
  std::shared_ptr<void> counted_;  // toward the connection, by the guard
  // Stays when a call ends without a status because the client has left.
  absl::StatusCode code_ = absl::StatusCode::kCancelled;
  std::string message_;
  std::string paths_;  // formatted for the log line
};

// A call of health or reflection, which counts toward the load like any other.
class CallLog::Weight : public grpc::experimental::Interceptor {
 public:
  explicit Weight(absl::string_view peer) : counted_(CountPublicCall(peer)) {
    ++ProcessCallLoad().num_calls;
  }
  ~Weight() override { --ProcessCallLoad().num_calls; }

  void Intercept(
      grpc::experimental::InterceptorBatchMethods* methods) override {
    methods->Proceed();
  }

 private:
  const std::shared_ptr<void> counted_;
};

class CallLog::Factory
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(CallLog& log) : log_(log) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      ServerRpcInfo* info) override {
    if (IsHealthOrReflection(info->method())) {
      return new Weight(info->server_context()->peer());
    }
    return new Call(log_, *info);
  }

 private:
  CallLog& log_;
};

// Asks the descriptor pool only once, and never for a name from a client,
// because the pool also remembers the names that it did not find.
CallLog::CallLog(Metrics& metrics, const RequestGateContext* gate)
    : metrics_(metrics), gate_(gate) {
  for (const char* name : kLoggedServices) {
    const google::protobuf::ServiceDescriptor* const service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
            name);
    DCP_CHECK(service != nullptr, name, " is not linked");
    for (int i = 0; i < service->method_count(); ++i) {
      const google::protobuf::MethodDescriptor& method = *service->method(i);
      methods_[absl::StrCat("/", name, "/", method.name())] = {
          .name = absl::StrCat(service->name(), ".", method.name()),
          .exists = true,
          .source_fields = SourceFields(method)};
    }
  }
}

const CallLog::Method& CallLog::FindMethod(const std::string& name) const {
  static const Method& unknown = *new Method();
  const auto found = methods_.find(name);
  return found == methods_.end() ? unknown : found->second;
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
CallLog::NewInterceptorFactory() {
  return std::make_unique<Factory>(*this);
}

void CallLog::EndRevoked() {
  std::vector<grpc_call*> revoked;
  {
    absl::MutexLock lock(&mutex_);
    for (Call* call : calls_) {
      if (!call->IsRevoked()) continue;
      grpc_call_ref(call->core());
      revoked.push_back(call->core());
    }
  }
  for (grpc_call* call : revoked) {
    grpc_call_cancel_with_status(
        call, GRPC_STATUS_UNAUTHENTICATED,
        "the rights of this client have changed: call again", nullptr);
    grpc_call_unref(call);
  }
}

int64_t CallLog::num_calls() const {
  absl::MutexLock lock(&mutex_);
  return num_calls_;
}

bool CallLog::WaitUntilIdle() {
  absl::MutexLock lock(&mutex_);
  while (num_calls_ > 0 && !interrupted_) changed_.Wait(&mutex_);
  return num_calls_ == 0;
}

void CallLog::Interrupt() {
  absl::MutexLock lock(&mutex_);
  interrupted_ = true;
  changed_.SignalAll();
}

}  // namespace dcp::server
