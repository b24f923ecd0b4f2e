// TimedAnswer: an answer that is given once, by who works on it or, when the
// time for it is over, by an alarm: a thread that a file system holds in the
// kernel holds no call. What comes after the first answer is dropped.
// Thread-safe; calls without a lock held.
#ifndef SERVER_TIMED_ANSWER_H_
#define SERVER_TIMED_ANSWER_H_

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/alarm.h"

namespace dcp::server {

// T is an absl::Status, or an absl::StatusOr of what can be copied.
template <typename T>
class TimedAnswer {
 public:
  using Answered = absl::AnyInvocable<void(T)>;

  // Calls `answered` with `late` after `timeout`, on a thread of gRPC, unless
  // it was given before. Owners: who is to give it, and the alarm.
  static std::shared_ptr<TimedAnswer> Start(absl::Duration timeout,
                                            absl::Status late,
                                            Answered answered) {
    std::shared_ptr<TimedAnswer> made(new TimedAnswer(std::move(answered)));
    absl::MutexLock lock(&made->mutex_);
    made->alarm_ = std::make_unique<grpc::Alarm>();
    made->alarm_->Set(absl::ToChronoTime(absl::Now() + timeout),
                      [made, late = std::move(late)](bool expired) {
                        if (expired) made->Give(late);
                      });
    return made;
  }

  void Give(T answer) {
    Answered answered = Take();
    if (answered != nullptr) answered(std::move(answer));
  }

  // For who must know that the answer is still wanted before doing what it
  // tells: the right to give it, or null when it was given. No alarm gives it
  // any more.
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

#endif  // SERVER_TIMED_ANSWER_H_
