// SPDX-License-Identifier: Apache-2.0
// TensorReader: one ReadTensors request spread over several streams, each of
// which reads a range of the bytes and resumes where it broke off. Used once,
// by one thread; it starts one more thread for each stream beyond the first, if
// the system allows it, and otherwise reads one stream after the other.
#ifndef CLIENT_TENSOR_READER_H_
#define CLIENT_TENSOR_READER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <stop_token>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/channel.h"
#include "client/received_chunk.h"
#include "client/tensor_layout.h"
#include "dcp/base/thread.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"
#include "tessera/v1/checkpoint_service.pb.h"

namespace dcp::client {

struct ReadTensorsOptions {
  // At most; small reads use one stream.
  int64_t num_streams = 4;
  // The payload of one message at most; 0: the server decides.
  uint32_t max_chunk_bytes = 0;
  // The etag that the checkpoint had when it was seen before, or empty. If it
  // has another, the read fails with FailedPrecondition.
  std::string etag = {};
  // Counts bytes as they arrive, so that other threads can watch; may be null.
  std::atomic<uint64_t>* bytes_arrived = nullptr;
  CallOptions call = {};
};

struct ReadTensorsStats {
  uint64_t num_bytes = 0;
  // Streams that broke and were resumed.
  int64_t num_resumed = 0;
};

class TensorReader {
 public:
  // All references must outlive the reader.
  TensorReader(const Channel& channel,
               const tessera::v1::ReadTensorsRequest& request,
               AllocatePart allocate, const ReadTensorsOptions& options);

  absl::StatusOr<ReadTensorsStats> Run();

 private:
  using Request = tessera::v1::ReadTensorsRequest;
  using Response = tessera::v1::ReadTensorsResponse;

  // Reads until the whole range has arrived; retries as Backoff decides.
  absl::Status ReadRange(TensorRange& range, bool is_first);
  // Reads one stream. Sets `failure` to an error that must not be retried.
  grpc::Status ReadOnce(grpc::ClientContext& context, const Request& request,
                        TensorRange& range, bool is_first,
                        absl::Status& failure);
  absl::Status Take(grpc::ByteBuffer& message, TensorLayout& header,
                    TensorRange& range, bool is_first);
  absl::Status TakeHeader(const Response::Header& message, TensorLayout& header,
                          TensorRange& range, bool is_first);
  absl::Status TakeChunk(const ReceivedChunk& chunk, TensorRange& range);
  // The first complete header decides how the streams share the bytes.
  absl::Status Begin(TensorLayout header, TensorRange& range);
  void ReadRest(TensorRange& range);
  void Fail(const absl::Status& status);

  const Channel& channel_;
  const Request& request_;
  const AllocatePart allocate_;
  const ReadTensorsOptions options_;
  const absl::Duration end_;
  std::stop_source stop_;

  // Written by Begin, before the other threads start.
  bool begun_ = false;
  TensorLayout layout_;

  absl::Mutex mutex_;
  absl::Status first_failure_ ABSL_GUARDED_BY(mutex_);
  int64_t num_resumed_ ABSL_GUARDED_BY(mutex_) = 0;

  std::list<TensorRange> ranges_;
  std::list<TensorRange*> left_;  // refers to ranges_, for the thread in Run
  std::list<Thread> threads_;     // joined before the rest is destroyed
};

}  // namespace dcp::client

#endif  // CLIENT_TENSOR_READER_H_
