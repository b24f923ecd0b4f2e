// SPDX-License-Identifier: Apache-2.0
// Passes the messages of gRPC and protobuf on to the server's log.
//
// Tested by tests/server/main_test.cc.
#include "server/process/library_log.h"

#include <string>

#include "absl/strings/string_view.h"
#include "dcp/base/log.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/support/log.h"
#include "server/process/log_limiter.h"
#include "server/process/log_text.h"

namespace dcp::server {
namespace {

void Log(LogLimiter& limiter, absl::string_view library,
         absl::string_view message) {
  if (!limiter.Allow()) return;
  DCP_LOG(kWarning) << "event=" << library << " message=" << LogText(message);
}

}  // namespace

// The limiters are never destroyed, because threads of the libraries may
// outlive main.
void LogLibraries() {
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  gpr_set_log_function([](gpr_log_func_args* args) {
    static LogLimiter& limiter = *new LogLimiter("grpc");
    Log(limiter, "grpc", args->message);
  });
  google::protobuf::SetLogHandler([](google::protobuf::LogLevel, const char*,
                                     int, const std::string& message) {
    static LogLimiter& limiter = *new LogLimiter("protobuf");
    Log(limiter, "protobuf", message);
  });
}

}  // namespace dcp::server
