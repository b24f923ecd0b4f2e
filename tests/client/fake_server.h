// SPDX-License-Identifier: Apache-2.0
// FakeServer: a daemon on a real socket that makes up the tensors it serves and
// follows a test's instructions, even where a correct daemon never would.
// Thread-safe where gRPC calls it; a test sets it up before the first call.

#ifndef TESTS_CLIENT_FAKE_SERVER_H_
#define TESTS_CLIENT_FAKE_SERVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "client/channel.h"
#include "google/longrunning/operations_proto.grpc.pb.h"
#include "grpcpp/server.h"
#include "tessera/v1/checkpoint_service.grpc.pb.h"
#include "tessera/v1/job_service.grpc.pb.h"

namespace dcp::client {

// The byte at an offset, counted over all parts.
inline uint8_t FakeByte(uint64_t offset) {
  return static_cast<uint8_t>(offset * 31 + (offset >> 8) * 7);
}

class FakeCheckpoints : public tessera::v1::CheckpointService::Service {
 public:
  using Response = tessera::v1::ReadTensorsResponse;

  // Parts "t0", "t1", .. with these sizes; all have the name `part_name` if it
  // is set.
  std::vector<uint64_t> part_bytes;
  std::string part_name;
  uint64_t chunk_bytes = 1 << 16;
  std::string etag = "e1";

  // Changes a message before it is sent; false ends the stream as if it were
  // complete. Applies to calls that begin afterwards. It may run after the
  // client has left.
  using Tamper = std::function<bool(Response&)>;
  void set_tamper(Tamper tamper);

  std::atomic<int> num_calls = 0;
  // This many calls fail with `failure` before one succeeds.
  std::atomic<int> num_failures = 0;
  // The server refuses this many page tokens, as after a restart.
  std::atomic<int> num_refused_tokens = 0;
  grpc::Status failure = {grpc::StatusCode::UNAVAILABLE, "try again"};

  // The latest call's header.
  std::string authorization() const;

 private:
  grpc::Status Enter(grpc::ServerContext* context);
  grpc::Status Inspect(grpc::ServerContext* context,
                       const tessera::v1::InspectRequest* request,
                       tessera::v1::InspectResponse* response) override;
  grpc::Status GetMetadata(
      grpc::ServerContext* context,
      const tessera::v1::GetMetadataRequest* request,
      grpc::ServerWriter<tessera::v1::GetMetadataResponse>* writer) override;
  grpc::Status ReadObjects(
      grpc::ServerContext* context,
      const tessera::v1::ReadObjectsRequest* request,
      grpc::ServerWriter<tessera::v1::ReadObjectsResponse>* writer) override;
  grpc::Status Verify(grpc::ServerContext* context,
                      const tessera::v1::VerifyCheckpointRequest* request,
                      grpc::ServerWriter<tessera::v1::VerifyCheckpointResponse>*
                          writer) override;
  grpc::Status ReadTensors(grpc::ServerContext* context,
                           const tessera::v1::ReadTensorsRequest* request,
                           grpc::ServerWriter<Response>* writer) override;

  mutable absl::Mutex mutex_;
  std::string authorization_ ABSL_GUARDED_BY(mutex_);
  Tamper tamper_ ABSL_GUARDED_BY(mutex_);
};

class FakeJobs : public tessera::v1::JobService::Service {
 public:
  std::vector<std::string> request_ids() const;
  // This many submits and watches fail before one succeeds.
  std::atomic<int> num_failures = 0;
  // A watch is cut after each state.
  std::atomic<bool> cut_watches = false;

 private:
  grpc::Status Reshard(grpc::ServerContext* context,
                       const tessera::v1::ReshardRequest* request,
                       google::longrunning::Operation* response) override;
  grpc::Status WatchJob(
      grpc::ServerContext* context, const tessera::v1::WatchJobRequest* request,
      grpc::ServerWriter<google::longrunning::Operation>* writer) override;

  std::atomic<int> num_watches_ = 0;
  mutable absl::Mutex mutex_;
  std::vector<std::string> request_ids_ ABSL_GUARDED_BY(mutex_);
};

class FakeOperations : public google::longrunning::Operations::Service {
 public:
  // The server refuses this many page tokens, as after a restart.
  std::atomic<int> num_refused_tokens = 0;
  // This many waits end before the job does.
  std::atomic<int> num_early_waits = 0;
  // Waits do not end before the test notifies this.
  bool hang = false;
  absl::Notification release;

 private:
  grpc::Status GetOperation(
      grpc::ServerContext* context,
      const google::longrunning::GetOperationRequest* request,
      google::longrunning::Operation* response) override;
  grpc::Status ListOperations(
      grpc::ServerContext* context,
      const google::longrunning::ListOperationsRequest* request,
      google::longrunning::ListOperationsResponse* response) override;
  grpc::Status WaitOperation(
      grpc::ServerContext* context,
      const google::longrunning::WaitOperationRequest* request,
      google::longrunning::Operation* response) override;
  grpc::Status CancelOperation(
      grpc::ServerContext* context,
      const google::longrunning::CancelOperationRequest* request,
      google::protobuf::Empty* response) override;
};

// An operation in that state; if the job has ended, done with a result.
google::longrunning::Operation FakeOperation(
    const std::string& name, tessera::v1::JobMetadata::State state);

class FakeServer {
 public:
  FakeServer();
  ~FakeServer();

  const std::string& address() const { return address_; }
  // The channel retries quickly.
  std::shared_ptr<Channel> Connect(const std::string& address) const;
  std::shared_ptr<Channel> Connect() const { return Connect(address_); }

  FakeCheckpoints checkpoints;
  FakeJobs jobs;
  FakeOperations operations;

 private:
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace dcp::client

#endif  // TESTS_CLIENT_FAKE_SERVER_H_
