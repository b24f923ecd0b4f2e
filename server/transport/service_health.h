// SPDX-License-Identifier: Apache-2.0
// ServiceHealth: decides how grpc.health.v1.Health answers for each name:
//
//   ""                            the process serves; it says nothing about
//   disks,
//                                 so that one that is gone does not take the
//                                 server away from the clients of the others
//   tessera.v1.CheckpointService  a root can be read
//   tessera.v1.JobService         a root can be read, and jobs can be recorded
//   google.longrunning.Operations always
//   root/N                        the N-th root can be used
//
// While the server drains, all are NOT_SERVING. Thread-safe.
#ifndef SERVER_TRANSPORT_SERVICE_HEALTH_H_
#define SERVER_TRANSPORT_SERVICE_HEALTH_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/health_check_service_interface.h"

namespace dcp::server {

inline constexpr char kCheckpointServiceName[] = "tessera.v1.CheckpointService";
inline constexpr char kJobServiceName[] = "tessera.v1.JobService";
inline constexpr char kOperationsName[] = "google.longrunning.Operations";

// "root/1". It is not the path, because anyone who may connect may ask for it.
std::string RootHealthName(size_t number);

class ServiceHealth {
 public:
  // Everything is healthy at first. `watched` are the numbers of the roots that
  // SetRoot will be called for, among `num_roots`; the others can be read.
  // `grpc` outlives this.
  ServiceHealth(grpc::HealthCheckServiceInterface& grpc, size_t num_roots,
                const std::vector<size_t>& watched);
  ServiceHealth(const ServiceHealth&) = delete;
  ServiceHealth& operator=(const ServiceHealth&) = delete;

  // Whether jobs can be recorded.
  void SetJournal(bool is_usable);
  void SetRoot(size_t number, bool is_readable, bool is_usable);

 private:
  void UpdateHealth() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const bool has_unwatched_;
  absl::Mutex mutex_;
  grpc::HealthCheckServiceInterface& grpc_ ABSL_GUARDED_BY(mutex_);
  bool journal_is_usable_ ABSL_GUARDED_BY(mutex_) = true;
  std::map<size_t, bool> root_is_readable_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp::server

#endif  // SERVER_TRANSPORT_SERVICE_HEALTH_H_
