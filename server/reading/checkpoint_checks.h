// SPDX-License-Identifier: Apache-2.0
// CheckpointChecks: the methods Verify and Diff of CheckpointService, which
// read whole checkpoints. They run on separate threads, so that they do not
// delay other calls. Called on gRPC's threads.
#ifndef SERVER_READING_CHECKPOINT_CHECKS_H_
#define SERVER_READING_CHECKPOINT_CHECKS_H_

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "dcp/io/file_system.h"
#include "grpcpp/support/server_callback.h"
#include "server/access/access.h"
#include "server/access/root_threads.h"
#include "server/memory/memory_budget.h"
#include "server/reading/checkpoint_calls.h"
#include "server/reading/message_stream.h"
#include "server/reading/shared_checkpoint.h"
#include "tessera/v1/checkpoint_service.pb.h"

namespace dcp::server {

class CheckpointChecks {
 public:
  // All references outlive this. `max_memory_bytes` is the server's.
  CheckpointChecks(FileSystem& fs, const Access& access, CheckpointCalls& calls,
                   MemoryBudget& budget, uint64_t max_memory_bytes);

  grpc::ServerWriteReactor<tessera::v1::VerifyCheckpointResponse>* Verify(
      grpc::CallbackServerContext* context,
      const tessera::v1::VerifyCheckpointRequest* request);
  grpc::ServerWriteReactor<tessera::v1::DiffResponse>* Diff(
      grpc::CallbackServerContext* context,
      const tessera::v1::DiffRequest* request);

  // Runs the waiting tasks and ends the threads.
  void Stop() { threads_.Stop(); }

 private:
  // Reserves memory for a stream and runs `check`, which reads `shared` and
  // perhaps other checkpoints, on a thread for checks.
  template <typename Response>
  void Run(const std::shared_ptr<MessageStream<Response>>& stream,
           const CheckpointCalls::Caller& caller,
           const SharedCheckpoint& shared,
           absl::AnyInvocable<void(uint64_t memory_bytes)> check);

  FileSystem& fs_;
  CheckpointCalls& calls_;
  MemoryBudget& budget_;
  const uint64_t max_memory_bytes_;
  RootThreads threads_;
};

}  // namespace dcp::server

#endif  // SERVER_READING_CHECKPOINT_CHECKS_H_
