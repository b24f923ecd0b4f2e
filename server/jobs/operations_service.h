// SPDX-License-Identifier: Apache-2.0
// OperationsService: google.longrunning.Operations over the server's jobs, with
// gRPC's callback API. Any thread.
#ifndef SERVER_JOBS_OPERATIONS_SERVICE_H_
#define SERVER_JOBS_OPERATIONS_SERVICE_H_

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "google/longrunning/operations_proto.grpc.pb.h"
#include "google/longrunning/operations_proto.pb.h"
#include "google/protobuf/empty.pb.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "server/access/access.h"
#include "server/access/admission.h"
#include "server/jobs/job_manager.h"
#include "server/process/task_queue.h"

namespace dcp::server {

class OperationsService final
    : public google::longrunning::Operations::CallbackService {
 public:
  // Both outlive this.
  OperationsService(JobManager& manager, Admission& admission);

  // `name` is "operations", or empty.
  grpc::ServerUnaryReactor* ListOperations(
      grpc::CallbackServerContext* context,
      const google::longrunning::ListOperationsRequest* request,
      google::longrunning::ListOperationsResponse* response) override;
  grpc::ServerUnaryReactor* GetOperation(
      grpc::CallbackServerContext* context,
      const google::longrunning::GetOperationRequest* request,
      google::longrunning::Operation* response) override;
  // FAILED_PRECONDITION if the operation has not ended.
  grpc::ServerUnaryReactor* DeleteOperation(
      grpc::CallbackServerContext* context,
      const google::longrunning::DeleteOperationRequest* request,
      google::protobuf::Empty* response) override;
  // OK even if the operation has ended.
  grpc::ServerUnaryReactor* CancelOperation(
      grpc::CallbackServerContext* context,
      const google::longrunning::CancelOperationRequest* request,
      google::protobuf::Empty* response) override;
  // Answers when the job has ended, or with the current state when the timeout
  // expires or the server drains. Without a timeout, the call's deadline
  // applies.
  grpc::ServerUnaryReactor* WaitOperation(
      grpc::CallbackServerContext* context,
      const google::longrunning::WaitOperationRequest* request,
      google::longrunning::Operation* response) override;

 private:
  using Work = absl::AnyInvocable<absl::Status(const Client&)>;

  // Admits the caller, and answers with the result of `work`, which runs on a
  // thread of this object: it waits for the journal.
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext& context,
                                   Work work);

  JobManager& manager_;
  Admission& admission_;
  TaskQueue tasks_;  // last: these tasks use the rest
};

}  // namespace dcp::server

#endif  // SERVER_JOBS_OPERATIONS_SERVICE_H_
