// SPDX-License-Identifier: Apache-2.0
// JobService: the methods that start jobs, and WatchJob, over gRPC's callback
// API. Checks the caller and the request, on threads of the roots that the
// request names; JobManager does the rest. Any thread.
#ifndef SERVER_JOBS_JOB_SERVICE_H_
#define SERVER_JOBS_JOB_SERVICE_H_

#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/longrunning/operations_proto.pb.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "server/access/access.h"
#include "server/access/admission.h"
#include "server/access/root_threads.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/job_runner.h"
#include "server/reading/timed_answer.h"
#include "tessera/v1/job_service.grpc.pb.h"

namespace dcp::server {

class JobService final : public tessera::v1::JobService::CallbackService {
 public:
  // All references outlive this. This outlives the server. A call ends as
  // Unavailable if the file system does not answer within `disk_timeout`.
  JobService(JobManager& manager, const JobRunner& runner, Admission& admission,
             absl::Duration disk_timeout);

  grpc::ServerUnaryReactor* Convert(
      grpc::CallbackServerContext* context,
      const tessera::v1::ConvertRequest* request,
      google::longrunning::Operation* response) override;
  grpc::ServerUnaryReactor* Reshard(
      grpc::CallbackServerContext* context,
      const tessera::v1::ReshardRequest* request,
      google::longrunning::Operation* response) override;
  grpc::ServerUnaryReactor* Consolidate(
      grpc::CallbackServerContext* context,
      const tessera::v1::ConsolidateRequest* request,
      google::longrunning::Operation* response) override;
  grpc::ServerUnaryReactor* Verify(
      grpc::CallbackServerContext* context,
      const tessera::v1::VerifyRequest* request,
      google::longrunning::Operation* response) override;

  // Streams the state of a job. A slow client does not delay the stream: an
  // update that it has not taken is replaced when the job changes again.
  // Unavailable when the server drains.
  grpc::ServerWriteReactor<google::longrunning::Operation>* WatchJob(
      grpc::CallbackServerContext* context,
      const tessera::v1::WatchJobRequest* request) override;

 private:
  using Answer = TimedAnswer<absl::StatusOr<google::longrunning::Operation>>;
  // A client's request. It may outlive the call if the timeout has answered.
  // Owners: the threads that check it, one after the other.
  struct Asked {
    JobKind kind;
    const Client* client;
    std::string caller;   // takes turns with others under this name
    std::string request;  // as StableBytes
    std::string call;     // the number of the call
    bool validate_only;
    std::stop_token gone;     // stop is requested when the caller is gone
    std::string source;       // the client's path
    std::string destination;  // likewise; the source if it is a verification
    std::shared_ptr<Answer> answer;
  };

  template <typename Request>
  grpc::ServerUnaryReactor* Start(grpc::CallbackServerContext* context,
                                  JobKind kind, const Request& request,
                                  google::longrunning::Operation* response);
  void CheckSource(const std::shared_ptr<const Asked>& asked);
  void CheckAndStart(const std::shared_ptr<const Asked>& asked);

  JobManager& manager_;
  const JobRunner& runner_;
  Admission& admission_;
  const absl::Duration disk_timeout_;
  RootThreads checkers_;  // last: these tasks use the rest
};

}  // namespace dcp::server

#endif  // SERVER_JOBS_JOB_SERVICE_H_
