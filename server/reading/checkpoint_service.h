// SPDX-License-Identifier: Apache-2.0
// CheckpointService: inspects, reads, verifies and compares checkpoints
// (tessera/v1/checkpoint_service.proto documents each call). Handlers check the
// caller and the request, and return; work that blocks runs on a fixed number
// of threads. Called on gRPC's threads.
#ifndef SERVER_READING_CHECKPOINT_SERVICE_H_
#define SERVER_READING_CHECKPOINT_SERVICE_H_

#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "dcp/io/file_system.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/access/access.h"
#include "server/access/admission.h"
#include "server/access/page_token.h"
#include "server/access/root_threads.h"
#include "server/memory/memory_budget.h"
#include "server/options/server_options.h"
#include "server/process/metrics.h"
#include "server/reading/checkpoint_cache.h"
#include "server/reading/checkpoint_calls.h"
#include "server/reading/checkpoint_checks.h"
#include "server/reading/tensor_stream.h"
#include "server/reading/window_readers.h"
#include "tessera/v1/checkpoint_service.grpc.pb.h"

namespace dcp::server {

// A stream ends if the client takes no message for this long, because other
// streams need the memory that it holds. Longer than a training job pauses.
inline constexpr absl::Duration kStallTimeout = absl::Minutes(5);

// ReadTensors frames the messages itself (server/reading/chunk_frame.h).
using CheckpointServiceBase =
    tessera::v1::CheckpointService::WithCallbackMethod_Inspect<
        tessera::v1::CheckpointService::WithCallbackMethod_GetMetadata<
            tessera::v1::CheckpointService::WithRawCallbackMethod_ReadTensors<
                tessera::v1::CheckpointService::WithCallbackMethod_ReadObjects<
                    tessera::v1::CheckpointService::WithCallbackMethod_Verify<
                        tessera::v1::CheckpointService::WithCallbackMethod_Diff<
                            tessera::v1::CheckpointService::Service>>>>>>;

class CheckpointService final : public CheckpointServiceBase {
 public:
  // Everything except `options` outlives this. This outlives the server: no
  // call is left when it is destroyed.
  CheckpointService(FileSystem& fs, Admission& admission, MemoryBudget& budget,
                    Metrics& metrics, const ServerOptions& options,
                    absl::Duration stall_timeout = kStallTimeout);
  ~CheckpointService() override;

  // Before the first call; an error if the system does not start the threads
  // that read.
  absl::Status Start() { return readers_->Start(); }

  // Refuses new calls with Unavailable from now on; calls in progress continue.
  void Drain() { calls_.Drain(); }

  // Streams in progress.
  int64_t num_streams() const { return calls_.num_streams(); }

  grpc::ServerUnaryReactor* Inspect(
      grpc::CallbackServerContext* context,
      const tessera::v1::InspectRequest* request,
      tessera::v1::InspectResponse* response) override;
  grpc::ServerWriteReactor<tessera::v1::GetMetadataResponse>* GetMetadata(
      grpc::CallbackServerContext* context,
      const tessera::v1::GetMetadataRequest* request) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* ReadTensors(
      grpc::CallbackServerContext* context,
      const grpc::ByteBuffer* request) override;
  grpc::ServerWriteReactor<tessera::v1::ReadObjectsResponse>* ReadObjects(
      grpc::CallbackServerContext* context,
      const tessera::v1::ReadObjectsRequest* request) override;
  grpc::ServerWriteReactor<tessera::v1::VerifyCheckpointResponse>* Verify(
      grpc::CallbackServerContext* context,
      const tessera::v1::VerifyCheckpointRequest* request) override;
  grpc::ServerWriteReactor<tessera::v1::DiffResponse>* Diff(
      grpc::CallbackServerContext* context,
      const tessera::v1::DiffRequest* request) override;

 private:
  using Caller = CheckpointCalls::Caller;

  FileSystem& fs_;
  MemoryBudget& budget_;
  Metrics& metrics_;
  const uint64_t max_memory_bytes_;
  const PageTokens page_tokens_;
  RootThreads openers_;
  RootThreads mappers_;
  TaskQueue parsers_;
  CheckpointCache cache_;
  CheckpointCalls calls_;
  CheckpointChecks checks_;
  bool can_read_ = true;  // whether there is memory for a reader
  std::unique_ptr<WindowReaders> readers_;
  std::unique_ptr<StreamContext> stream_context_;
  std::shared_ptr<void> streams_gauge_;
};

}  // namespace dcp::server

#endif  // SERVER_READING_CHECKPOINT_SERVICE_H_
