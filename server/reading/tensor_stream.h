// SPDX-License-Identifier: Apache-2.0
// TensorStream: one call of ReadTensors. A state machine that is driven by
// events (the checkpoint is open, memory is reserved, a window is ready, a
// message is written, the client is gone), one at a time, on the thread where
// each occurs; no thread waits for a stream. A stream holds only a few windows
// ahead of the client, so a slow client slows down only that stream.
#ifndef SERVER_READING_TENSOR_STREAM_H_
#define SERVER_READING_TENSOR_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/access/access.h"
#include "server/access/admission.h"
#include "server/memory/call_memory.h"
#include "server/memory/memory_budget.h"
#include "server/process/metrics.h"
#include "server/process/task_queue.h"
#include "server/reading/checkpoint_cache.h"
#include "server/reading/stall_timer.h"
#include "server/reading/stream_parts.h"
#include "server/reading/window_readers.h"
#include "tessera/v1/checkpoint_service.pb.h"

namespace dcp::server {

// Everything that a server's streams share; outlives them.
struct StreamContext {
  CheckpointCache& cache;
  TaskQueue& parsers;  // for large requests
  WindowReaders& readers;
  MemoryBudget& budget;
  Metrics& metrics;
  // A client that takes no message for this long is considered gone.
  absl::Duration stall_timeout;
  // A file system that does not answer for this long is considered hanging.
  absl::Duration disk_timeout;
};

class TensorStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                           public std::enable_shared_from_this<TensorStream> {
 public:
  // Begins at once. The stream owns itself until gRPC is done with it, and then
  // calls `ended`. `request` is a serialized ReadTensorsRequest. The client
  // outlives the stream.
  static TensorStream* Start(StreamContext& context,
                             grpc::CallbackServerContext& call,
                             const Admission::Caller& caller,
                             grpc::ByteBuffer request,
                             absl::AnyInvocable<void()> ended);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  // A checkpoint and the requested parts.
  struct Opened {
    std::shared_ptr<SharedCheckpoint> checkpoint;
    StreamParts parts;
  };
  // The events since the last step.
  struct Events {
    bool cancelled = false;
    bool written = false;
    bool write_failed = false;
    bool stalled = false;
    bool disk_stalled = false;
    // Memory for the request.
    std::optional<absl::StatusOr<CallMemory>> admitted;
    std::optional<absl::StatusOr<Opened>> opened;
    std::optional<absl::StatusOr<CallMemory>> memory;
  };

  TensorStream(StreamContext& context, grpc::CallbackServerContext& call,
               const Admission::Caller& caller, grpc::ByteBuffer request,
               absl::AnyInvocable<void()> ended);

  // A function that records the event, if the stream still lives.
  std::function<void()> EventSetter(bool Events::*event);
  void StartDiskTimer();
  void AskForRequest();
  // Continues with the memory for a request that has `num_bytes`.
  void Admit(size_t num_bytes, absl::StatusOr<CallMemory> memory);
  absl::Status ReadRequest();
  void Open();
  void Locate(std::shared_ptr<SharedCheckpoint> checkpoint);

  // Applies `change` to the events and runs the next steps.
  void Record(absl::FunctionRef<void(Events&)> change);
  void Step(Events events);
  absl::Status Take(Events& events);
  absl::Status TakeOpened(Opened opened);
  void AskForMemory();
  void WantWindows();
  absl::Status WriteNext();
  void SetWaitingForDisk(bool waiting);
  void WriteHeader();
  void WriteChunk();
  void Write();
  void End(const absl::Status& status);
  void LogEnd() const;
  // The call, the client and the path, for a log line.
  std::string LogFields() const;

  StreamContext& context_;
  grpc::CallbackServerContext& call_;
  const Client& client_;
  const std::shared_ptr<ClientAccount> account_;
  absl::AnyInvocable<void()> ended_;
  // Owners: gRPC, through this pointer, until OnDone; pending events.
  std::shared_ptr<TensorStream> self_;

  absl::Mutex mutex_;
  Events events_ ABSL_GUARDED_BY(mutex_);
  bool moving_ ABSL_GUARDED_BY(mutex_) = false;
  bool again_ ABSL_GUARDED_BY(mutex_) = false;

  // Stops the loops over the requested tensors when nobody needs the result.
  std::stop_source stop_;
  // Requested when the client is gone; ends the wait for an open checkpoint.
  std::stop_source gone_;
  const std::shared_ptr<StallTimer> stall_timer_;
  const std::shared_ptr<StallTimer> disk_timer_;

  // Everything below belongs to the thread that runs the current step.
  grpc::ByteBuffer request_bytes_;
  CallMemory request_memory_;
  tessera::v1::ReadTensorsRequest request_;
  std::optional<Opened> opened_;  // until the stream ends
  bool has_opened_ = false;
  std::shared_ptr<CallMemoryRequest> memory_request_;
  // Owners: this, and messages that gRPC is sending.
  std::shared_ptr<const CallMemory> memory_;
  uint64_t window_bytes_ = 0;  // for windows, out of memory_
  uint64_t chunk_bytes_ = 0;
  std::unique_ptr<WindowUser> user_;
  size_t next_header_part_ = 0;
  bool header_written_ = false;
  struct Held {
    std::shared_ptr<const SharedWindow> window;
    uint32_t part;
    uint64_t begin;  // byte offset in the part
  };
  std::deque<Held> held_;      // windows to be written, in order
  uint64_t held_bytes_ = 0;    // bytes of these windows
  uint64_t want_offset_ = 0;   // in the stream, where the next window begins
  uint64_t write_offset_ = 0;  // in the stream, where the next chunk begins
  grpc::ByteBuffer buffer_;    // holds the message being written
  bool writing_ = false;
  bool waiting_for_disk_ = false;
  uint64_t writing_bytes_ = 0;
  uint64_t sent_bytes_ = 0;
  absl::Status status_;  // why the stream ends
  bool ending_ = false;
  bool finished_ = false;
};

}  // namespace dcp::server

#endif  // SERVER_READING_TENSOR_STREAM_H_
