// CallLog: sees each call of our services begin and end: counts it in the
// metrics, writes a line of log, with the checkpoints that a look or a check is
// about, and knows how many go on, which a draining server waits for. Health
// checks and reflection are not ours. Methods that do not exist are one method,
// "unknown", and calls that are refused are logged at a bounded rate: anybody
// may make them. An interceptor of gRPC's server; its calls come from gRPC's
// threads. Thread-safe; outlives the server.
#ifndef SERVER_CALL_LOG_H_
#define SERVER_CALL_LOG_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_interceptor.h"
#include "server/access.h"
#include "server/log_limiter.h"
#include "server/metrics.h"

namespace dcp::server {

class CallLog {
 public:
  // `access` tells who calls; null: lines do not name clients.
  explicit CallLog(Metrics& metrics, const Access* access = nullptr);
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;

  // For ServerBuilder; it refers to this.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
  NewInterceptorFactory();

  int64_t num_calls() const;

  // Until no call goes on or Interrupt was called. Whether no call goes on.
  bool WaitUntilIdle();
  void Interrupt();

 private:
  class Factory;
  class Call;
  class Weight;

  // "CheckpointService.Inspect" for "/tessera.v1.CheckpointService/Inspect":
  // some names are of several services.
  const std::string& ShortName(const std::string& method) const;

  // The client of a call, "" for one that is unknown.
  std::string ClientOf(const grpc::ServerContextBase& context) const;

  Metrics& metrics_;
  const Access* const access_;
  // All methods of ours; by their full names.
  absl::flat_hash_map<std::string, std::string> short_names_;
  LogLimiter refused_log_{"call"};
  mutable absl::Mutex mutex_;
  absl::CondVar changed_;
  int64_t num_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace dcp::server

#endif  // SERVER_CALL_LOG_H_
