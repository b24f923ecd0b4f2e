// JobService: the methods that start jobs, and WatchJob, over gRPC's callback
// API. Checks who calls and what they ask for; JobManager does the rest. Any
// thread.
#ifndef SERVER_JOB_SERVICE_H_
#define SERVER_JOB_SERVICE_H_

#include "google/longrunning/operations_proto.pb.h"
#include "google/protobuf/message.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "server/access.h"
#include "server/job_manager.h"
#include "server/job_runner.h"
#include "tessera/v1/job_service.grpc.pb.h"

namespace dcp::server {

class JobService final : public tessera::v1::JobService::CallbackService {
 public:
  // All outlive this.
  JobService(JobManager& manager, const JobRunner& runner, const Access& access)
      : manager_(manager), runner_(runner), access_(access) {}

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

  // A stream that a slow client does not hold up: what it has not taken when
  // the job changes again is replaced. Unavailable when the server drains.
  grpc::ServerWriteReactor<google::longrunning::Operation>* WatchJob(
      grpc::CallbackServerContext* context,
      const tessera::v1::WatchJobRequest* request) override;

 private:
  grpc::ServerUnaryReactor* Start(grpc::CallbackServerContext* context,
                                  JobKind kind,
                                  const google::protobuf::Message& request,
                                  bool validate_only,
                                  google::longrunning::Operation* response);
  JobManager& manager_;
  const JobRunner& runner_;
  const Access& access_;
};

}  // namespace dcp::server

#endif  // SERVER_JOB_SERVICE_H_
