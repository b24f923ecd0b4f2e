// CallLog: sees each call of our services begin and end: counts it in the
// metrics, writes a line of log, and knows how many go on, which a draining
// server waits for. Health checks and reflection are none of ours. An
// interceptor of gRPC's server; its calls come from gRPC's threads.
// Thread-safe; outlives the server.
#ifndef SERVER_CALL_LOG_H_
#define SERVER_CALL_LOG_H_

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/support/server_interceptor.h"
#include "server/metrics.h"

namespace dcp::server {

class CallLog {
 public:
  explicit CallLog(Metrics& metrics) : metrics_(metrics) {}
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;

  // For ServerBuilder; it refers to this.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
  NewInterceptorFactory();

  int64_t num_calls() const;

  // Until no call goes on, Interrupt was called, or the deadline. Whether no
  // call goes on.
  bool WaitUntilIdle(absl::Time deadline);
  void Interrupt();

 private:
  class Factory;
  class Call;

  Metrics& metrics_;
  mutable absl::Mutex mutex_;
  absl::CondVar changed_;
  int64_t num_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace dcp::server

#endif  // SERVER_CALL_LOG_H_
