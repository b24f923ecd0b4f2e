// TensorReader: one ReadTensors of the caller's, over several streams at once,
// each of which reads a range of the bytes and begins where it broke off. Used
// once, by one thread; has a thread more for each stream beyond the first.
#ifndef CLIENT_TENSOR_READER_H_
#define CLIENT_TENSOR_READER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/channel.h"
#include "client/tensor_layout.h"
#include "tessera/v1/checkpoint_service.grpc.pb.h"

namespace dcp::client {

struct ReadTensorsOptions {
  // At most; small reads take one.
  int64_t num_streams = 4;
  // Of the payload of a message; 0: the server decides.
  uint32_t max_chunk_bytes = 0;
  // Of the checkpoint as it was seen before, or empty: another one is
  // FailedPrecondition.
  std::string etag = {};
  // Counts the bytes as they arrive, for other threads to watch; may be null.
  std::atomic<uint64_t>* bytes_arrived = nullptr;
  CallOptions call = {};
};

struct ReadTensorsStats {
  uint64_t num_bytes = 0;
  // Streams that broke and went on.
  int64_t num_resumed = 0;
};

class TensorReader {
 public:
  // All references outlive it.
  TensorReader(const Channel& channel,
               tessera::v1::CheckpointService::Stub& stub,
               const tessera::v1::ReadTensorsRequest& request,
               AllocatePart allocate, const ReadTensorsOptions& options);

  absl::StatusOr<ReadTensorsStats> Run();

 private:
  using Request = tessera::v1::ReadTensorsRequest;
  using Response = tessera::v1::ReadTensorsResponse;

  // Whether the whole range is there; retries as Backoff says.
  absl::Status ReadRange(TensorRange& range, bool is_first);
  // What one stream brings. `failure` is what no retry helps against.
  grpc::Status ReadOnce(grpc::ClientContext& context, const Request& request,
                        TensorRange& range, bool is_first,
                        absl::Status& failure);
  absl::Status Take(const Response& message, TensorLayout& header,
                    TensorRange& range, bool is_first);
  // The first complete header decides what is read by whom.
  absl::Status Begin(TensorLayout header, TensorRange& range);
  void Fail(const absl::Status& status);

  const Channel& channel_;
  tessera::v1::CheckpointService::Stub& stub_;
  const Request& request_;
  const AllocatePart allocate_;
  const ReadTensorsOptions options_;
  const absl::Time deadline_;
  std::stop_source stop_;

  // Written by Begin, before other threads are there.
  bool begun_ = false;
  TensorLayout layout_;

  absl::Mutex mutex_;
  absl::Status first_failure_ ABSL_GUARDED_BY(mutex_);
  int64_t num_resumed_ ABSL_GUARDED_BY(mutex_) = 0;

  std::list<TensorRange> ranges_;
  std::list<std::jthread> threads_;  // joined before the rest is destroyed
};

}  // namespace dcp::client

#endif  // CLIENT_TENSOR_READER_H_
