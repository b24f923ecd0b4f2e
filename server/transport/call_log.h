// SPDX-License-Identifier: Apache-2.0
// CallLog: an interceptor in gRPC's server that sees each call to our services
// begin and end. It counts the call in the metrics and writes a log line, which
// names the checkpoints that the call inspects or checks. It also knows how
// many calls are in progress, which a draining server waits for. Health checks
// and reflection are left out. Each call's request passes the server's gate
// (request_gate.h). All methods that do not exist are logged as "unknown", and
// refused calls are logged at a limited rate, because anybody can make them.
// Called on gRPC's threads. Thread-safe; outlives the server.
#ifndef SERVER_TRANSPORT_CALL_LOG_H_
#define SERVER_TRANSPORT_CALL_LOG_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_interceptor.h"
#include "server/process/log_limiter.h"
#include "server/process/metrics.h"
#include "server/transport/request_gate.h"

namespace google::protobuf {
class FieldDescriptor;
}  // namespace google::protobuf

namespace dcp::server {

// The call's number, which is in each log line about it; "" for a call that no
// CallLog sees. It is unique within the process.
std::string CallId(const grpc::ServerContextBase& context);

class CallLog {
 public:
  // Both outlive this. Without `gate` all requests are parsed, and the lines do
  // not name clients.
  explicit CallLog(Metrics& metrics, const RequestGateContext* gate = nullptr);
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;

  // To be given to ServerBuilder. Refers to this object.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
  NewInterceptorFactory();

  // Ends the calls in progress of clients that are revoked, or that had no
  // valid token when they called, as Unauthenticated.
  void EndRevoked();

  int64_t num_calls() const;

  // Waits until no call is in progress or Interrupt is called. Returns whether
  // no call is in progress.
  bool WaitUntilIdle();
  void Interrupt();

 private:
  class Factory;
  class Call;
  class Weight;

  // One for all methods that do not exist.
  struct Method {
    // "CheckpointService.Inspect": some names occur in several services.
    std::string name = "unknown";
    bool exists = false;
    // The fields of the request that name the checkpoints.
    std::vector<const google::protobuf::FieldDescriptor*> source_fields;
  };

  // By the full name, "/tessera.v1.CheckpointService/Inspect".
  const Method& FindMethod(const std::string& name) const;

  Metrics& metrics_;
  const RequestGateContext* const gate_;
  // All methods of our services, by their full names.
  absl::flat_hash_map<std::string, Method> methods_;
  LogLimiter refused_log_{"call"};
  std::atomic<uint64_t> num_begun_ = 0;
  mutable absl::Mutex mutex_;
  absl::CondVar changed_;
  int64_t num_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
  // Those that have not been answered to the end.
  absl::flat_hash_set<Call*> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp::server

#endif  // SERVER_TRANSPORT_CALL_LOG_H_
