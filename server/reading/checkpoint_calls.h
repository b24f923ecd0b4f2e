// SPDX-License-Identifier: Apache-2.0
// CheckpointCalls: the steps that begin every method of CheckpointService:
// admitting the caller, counting streams, opening sources and locating entries.
// Thread-safe; does not block.
#ifndef SERVER_READING_CHECKPOINT_CALLS_H_
#define SERVER_READING_CHECKPOINT_CALLS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/support/server_callback.h"
#include "proto/error_detail.h"
#include "proto/messages/request_messages.h"
#include "server/access/access.h"
#include "server/access/admission.h"
#include "server/memory/client_account.h"
#include "server/reading/checkpoint_cache.h"
#include "server/reading/message_stream.h"
#include "server/reading/shared_checkpoint.h"
#include "server/transport/compression.h"
#include "tessera/v1/checkpoint.pb.h"

namespace dcp::server {

struct CheckpointCallLimits {
  int64_t max_streams = 0;
  // A stream ends if the client takes no message for this long.
  absl::Duration stall_timeout;
  absl::Duration disk_timeout;
};

class CheckpointCalls {
 public:
  using Caller = Admission::Caller;
  using OpenedFunction =
      absl::AnyInvocable<void(std::shared_ptr<SharedCheckpoint>)>;

  // Both outlive this.
  CheckpointCalls(Admission& admission, CheckpointCache& cache,
                  const CheckpointCallLimits& limits)
      : admission_(admission), cache_(cache), limits_(limits) {}

  const CheckpointCallLimits& limits() const { return limits_; }

  // Refuses new calls with Unavailable from now on; calls in progress continue.
  void Drain() { draining_.store(true); }
  // Streams in progress.
  int64_t num_streams() const { return num_streams_.load(); }

  // Identifies the caller; Unavailable while the server drains.
  absl::StatusOr<Caller> Admit(const grpc::CallbackServerContext& context);
  // Counts a stream; ResourceExhausted if there are too many.
  absl::Status BeginStream(ClientAccount& account);
  void EndStream(ClientAccount& account);

  // Makes a stream of small messages for a call, after admitting it. If the
  // call is refused, the stream has failed already and the caller's client is
  // null.
  template <typename Response>
  std::shared_ptr<MessageStream<Response>> NewStream(
      grpc::CallbackServerContext& context, Caller& caller);
  // Opens a source for a stream; an error ends the stream.
  template <typename Response>
  void OpenFor(const std::shared_ptr<MessageStream<Response>>& stream,
               const Caller& caller, const tessera::v1::Source& source,
               absl::string_view field, OpenedFunction then);
  // Like SharedCheckpoint::Locate, but answers Unavailable if the file system
  // takes too long.
  void Locate(const Caller& caller, SharedCheckpoint& shared,
              std::vector<uint32_t> entries, SharedCheckpoint::Located done);

 private:
  Admission& admission_;
  CheckpointCache& cache_;
  const CheckpointCallLimits limits_;
  std::atomic<bool> draining_{false};
  std::atomic<int64_t> num_streams_{0};
};

template <typename Response>
std::shared_ptr<MessageStream<Response>> CheckpointCalls::NewStream(
    grpc::CallbackServerContext& context, Caller& caller) {
  CompressIfAsked(context);
  absl::StatusOr<Caller> admitted = Admit(context);
  if (admitted.ok()) caller = *std::move(admitted);
  absl::Status status =
      admitted.ok() ? BeginStream(*caller.account) : admitted.status();
  auto stream = MessageStream<Response>::Make(
      context, limits_.stall_timeout,
      [this, counted = status.ok(), account = caller.account] {
        if (counted) EndStream(*account);
      });
  if (!status.ok()) {
    caller.client = nullptr;
    stream->Fail(std::move(status));
  }
  return stream;
}

template <typename Response>
void CheckpointCalls::OpenFor(
    const std::shared_ptr<MessageStream<Response>>& stream,
    const Caller& caller, const tessera::v1::Source& source,
    absl::string_view field, OpenedFunction then) {
  const absl::StatusOr<SourceSpec> spec = SourceFromProto(source, field);
  if (!spec.ok()) return stream->Fail(spec.status());
  cache_.Open(
      caller, *spec, stream->stop(),
      [stream, path = absl::StrCat(field, ".path"), then = std::move(then)](
          absl::StatusOr<std::shared_ptr<SharedCheckpoint>> opened) mutable {
        if (!opened.ok())
          return stream->Fail(BlameField(opened.status(), path));
        then(*std::move(opened));
      });
}

}  // namespace dcp::server

#endif  // SERVER_READING_CHECKPOINT_CALLS_H_
