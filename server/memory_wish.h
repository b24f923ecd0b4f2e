// MemoryWish: memory for a call that cannot wait for ever. Thread-safe.
#ifndef SERVER_MEMORY_WISH_H_
#define SERVER_MEMORY_WISH_H_

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/alarm.h"
#include "server/memory_budget.h"

namespace dcp::server {

// A call that finds no memory waits so long: longer than a chunk takes to a
// slow client, shorter than people wait without a word.
inline constexpr absl::Duration kMaxMemoryWait = absl::Seconds(10);

class MemoryWish : public std::enable_shared_from_this<MemoryWish> {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<Reservation>)>;

  // Calls `done` once, perhaps before this returns, without a lock held: with
  // the memory; or with Unavailable and a retry-after when it was not there
  // after `max_wait`; or ResourceExhausted when it can never be. Owners: the
  // caller, the alarm, and the budget's queue.
  static std::shared_ptr<MemoryWish> Ask(MemoryBudget& budget, uint64_t bytes,
                                         absl::Duration max_wait, Done done);

  // `done` is not called any more, unless it was or is being called.
  void Cancel();

 private:
  MemoryWish(MemoryBudget& budget, uint64_t bytes, Done done)
      : budget_(budget), bytes_(bytes), done_(std::move(done)) {}
  void Start(absl::Duration max_wait);
  // Once: the rest find nothing to call.
  void End(absl::StatusOr<Reservation> result);
  Done TakeDone();

  MemoryBudget& budget_;
  const uint64_t bytes_;
  absl::Mutex mutex_;
  Done done_ ABSL_GUARDED_BY(mutex_);
  uint64_t ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp::server

#endif  // SERVER_MEMORY_WISH_H_
