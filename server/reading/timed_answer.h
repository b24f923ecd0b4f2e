// SPDX-License-Identifier: Apache-2.0
// TimedAnswer: an answer that is given once, either by the code that works on
// it or, after a timeout, by an alarm. A thread that a file system blocks in
// the kernel therefore does not block the call. Later answers are dropped.
// Thread-safe; calls without holding a lock.
#ifndef SERVER_READING_TIMED_ANSWER_H_
#define SERVER_READING_TIMED_ANSWER_H_

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/alarm.h"
#include "proto/rpc_time.h"

namespace dcp::server {

// T is absl::Status, or absl::StatusOr of a copyable type.
template <typename T>
class TimedAnswer {
 public:
  using Answered = absl::AnyInvocable<void(T)>;

  // Calls `answered` with `late` after `timeout`, on a gRPC thread, unless an
  // answer was given before. Owners: the code that will answer, and the alarm.
  static std::shared_ptr<TimedAnswer> Start(absl::Duration timeout,
                                            absl::Status late,
                                            Answered answered) {
    std::shared_ptr<TimedAnswer> made(new TimedAnswer(std::move(answered)));
    absl::MutexLock lock(&made->mutex_);
    made->alarm_ = std::make_unique<grpc::Alarm>();
    made->alarm_->Set(RpcTimeIn(timeout),
                      [made, late = std::move(late)](bool expired) {
                        if (expired) made->Give(late);
                      });
    return made;
  }

  void Give(T answer) {
    Answered answered = Take();
    if (answered != nullptr) answered(std::move(answer));
  }

  // Takes the right to answer, for code that must know that the answer is still
  // needed before it acts; null if the answer was given. Afterwards the alarm
  // does not answer.
  Answered Take() {
    Answered answered;
    std::unique_ptr<grpc::Alarm> alarm;  // may call back, without the lock
    absl::MutexLock lock(&mutex_);
    answered = std::exchange(answered_, nullptr);
    alarm = std::move(alarm_);
    return answered;
  }

  bool given() const {
    absl::MutexLock lock(&mutex_);
    return answered_ == nullptr;
  }

 private:
  explicit TimedAnswer(Answered answered) : answered_(std::move(answered)) {}

  mutable absl::Mutex mutex_;
  Answered answered_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp::server

#endif  // SERVER_READING_TIMED_ANSWER_H_
