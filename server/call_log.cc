#include "server/call_log.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "dcp/base/log.h"
#include "grpcpp/server_context.h"
#include "server/log_text.h"

namespace dcp::server {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::ServerRpcInfo;

bool IsOurs(absl::string_view method) {
  return absl::StartsWith(method, "/tessera.") ||
         absl::StartsWith(method, "/google.longrunning.");
}

// "/tessera.v1.JobService/Verify" as "JobService.Verify": some names are of
// several services.
std::string ShortName(absl::string_view method) {
  const size_t dot = method.rfind('.');
  std::string name(method.substr(dot + 1));
  if (const size_t slash = name.find('/'); slash != std::string::npos) {
    name[slash] = '.';
  }
  return name;
}

}  // namespace

// Lives as long as gRPC knows of the call.
class CallLog::Call : public grpc::experimental::Interceptor {
 public:
  Call(CallLog& log, ServerRpcInfo& info)
      : log_(log),
        method_(ShortName(info.method())),
        peer_(info.server_context()->peer()),
        begin_(absl::Now()) {
    absl::MutexLock lock(&log_.mutex_);
    ++log_.num_calls_;
  }

  ~Call() override {
    const std::string code = absl::StatusCodeToString(code_);
    log_.metrics_.CountRequest(method_, code);
    DCP_LOG(kInfo) << "event=call method=" << method_ << " code=" << code
                   << " seconds="
                   << absl::StrFormat(
                          "%.3f", absl::ToDoubleSeconds(absl::Now() - begin_))
                   << " peer=" << LogText(peer_)
                   << (message_.empty() ? "" : " message=")
                   << (message_.empty() ? "" : LogText(message_));
    absl::MutexLock lock(&log_.mutex_);
    --log_.num_calls_;
    log_.changed_.SignalAll();
  }

  void Intercept(
      grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::Status status = methods->GetSendStatus();
      code_ = static_cast<absl::StatusCode>(status.error_code());
      message_ = status.error_message();
    }
    methods->Proceed();
  }

 private:
  CallLog& log_;
  const std::string method_;
  const std::string peer_;
  const absl::Time begin_;
  // Of a call that ends without a status: its client has left.
  absl::StatusCode code_ = absl::StatusCode::kCancelled;
  std::string message_;
};

class CallLog::Factory
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(CallLog& log) : log_(log) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      ServerRpcInfo* info) override {
    return IsOurs(info->method()) ? new Call(log_, *info) : nullptr;
  }

 private:
  CallLog& log_;
};

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
CallLog::NewInterceptorFactory() {
  return std::make_unique<Factory>(*this);
}

int64_t CallLog::num_calls() const {
  absl::MutexLock lock(&mutex_);
  return num_calls_;
}

bool CallLog::WaitUntilIdle(absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  while (num_calls_ > 0 && !interrupted_ && absl::Now() < deadline) {
    changed_.WaitWithDeadline(&mutex_, deadline);
  }
  return num_calls_ == 0;
}

void CallLog::Interrupt() {
  absl::MutexLock lock(&mutex_);
  interrupted_ = true;
  changed_.SignalAll();
}

}  // namespace dcp::server
