// SPDX-License-Identifier: Apache-2.0
// MessageStream: a call that answers with many small messages: the pages of a
// long answer, or progress reports. It continues whenever a write completes; no
// thread waits for a client. Thread-safe.
#ifndef SERVER_READING_MESSAGE_STREAM_H_
#define SERVER_READING_MESSAGE_STREAM_H_

#include <memory>
#include <stop_token>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/support/server_callback.h"
#include "proto/rpc_status.h"
#include "server/reading/stall_timer.h"

namespace dcp::server {

template <typename Response>
class MessageStream final
    : public grpc::ServerWriteReactor<Response>,
      public std::enable_shared_from_this<MessageStream<Response>> {
 public:
  // Fills in the next message, or returns false at the end. Called on any
  // thread, but never concurrently; does not block.
  using Next = absl::AnyInvocable<absl::StatusOr<bool>(Response&)>;
  // Called when the call is over.
  using Ended = absl::AnyInvocable<void()>;

  // Cancels the call if the client takes no message for `stall_timeout`.
  // Owners: gRPC, until the call is over, and the code that answers it.
  static std::shared_ptr<MessageStream> Make(
      const grpc::CallbackServerContext& call, absl::Duration stall_timeout,
      Ended ended) {
    std::shared_ptr<MessageStream> stream(
        new MessageStream(call, stall_timeout, std::move(ended)));
    stream->self_ = stream;
    stream->stall_timer_->Start([weak = stream->weak_from_this()] {
      if (const auto self = weak.lock()) self->OnStalled();
    });
    return stream;
  }

  // Stop is requested when the client is gone.
  std::stop_token stop() const { return stop_.get_token(); }

  // Writes `message`, unless another is still being written. For progress
  // reports, which may be skipped.
  void Offer(Response message) {
    {
      absl::MutexLock lock(&mutex_);
      if (writing_ || ended_by_ || next_ != nullptr) return;
      writing_ = true;
    }
    message_ = std::move(message);
    Write();
  }

  // Provides the rest of the stream. Call Send or Fail once.
  void Send(Next next) {
    {
      absl::MutexLock lock(&mutex_);
      next_ = std::move(next);
    }
    Move();
  }
  void Fail(absl::Status status) {
    EndBy(std::move(status));
    Move();
  }

  void OnWriteDone(bool ok) override {
    stall_timer_->EndWait();
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
    }
    if (!ok) EndBy(absl::CancelledError("the client is gone"));
    Move();
  }

  void OnCancel() override {
    stop_.request_stop();
    EndBy(absl::CancelledError("the call was cancelled"));
    Move();
  }

  void OnDone() override {
    stall_timer_->Stop();
    ended_();
    const std::shared_ptr<MessageStream> self = std::move(self_);
  }

 private:
  MessageStream(const grpc::CallbackServerContext& call,
                absl::Duration stall_timeout, Ended ended)
      : call_(call),
        stall_timer_(StallTimer::Create(stall_timeout)),
        ended_(std::move(ended)) {}

  void Write() {
    stall_timer_->BeginWait();
    this->StartWrite(&message_);
  }

  // Only cancelling the call ends the write. `cancelling_` keeps the call from
  // ending before TryCancel has returned.
  void OnStalled() {
    {
      absl::MutexLock lock(&mutex_);
      if (!writing_ || finished_) return;
      cancelling_ = true;
    }
    call_.TryCancel();
    {
      absl::MutexLock lock(&mutex_);
      cancelling_ = false;
    }
    Move();
  }

  void EndBy(absl::Status status) {
    Next dropped;  // destroyed without the lock
    absl::MutexLock lock(&mutex_);
    if (ended_by_) return;
    ended_by_ = true;
    status_ = std::move(status);
    if (!calling_) dropped = std::move(next_);
  }

  // Whoever sets `writing_` owns `message_` and the right to write.
  void Move() {
    const auto self = this->shared_from_this();
    bool finish = false;
    absl::Status status;
    {
      absl::MutexLock lock(&mutex_);
      if (writing_ || finished_ || cancelling_) return;
      if (ended_by_) {
        finish = finished_ = true;
        status = status_;
      } else if (next_ == nullptr) {
        return;
      } else {
        writing_ = calling_ = true;
      }
    }
    if (finish) return this->Finish(ToRpcStatus(status));
    message_.Clear();
    const absl::StatusOr<bool> more = next_(message_);
    {
      absl::MutexLock lock(&mutex_);
      calling_ = false;
      if (!more.ok() || !*more) writing_ = false;
    }
    if (more.ok() && *more) return Write();
    EndBy(more.status());
    Move();
  }

  const grpc::CallbackServerContext& call_;
  const std::shared_ptr<StallTimer> stall_timer_;
  Ended ended_;
  std::stop_source stop_;
  std::shared_ptr<MessageStream> self_;
  Response message_;

  absl::Mutex mutex_;
  Next next_;  // set under the lock, called by the writer
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool calling_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_by_ ABSL_GUARDED_BY(mutex_) = false;  // status_ is set
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelling_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp::server

#endif  // SERVER_READING_MESSAGE_STREAM_H_
