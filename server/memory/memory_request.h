// SPDX-License-Identifier: Apache-2.0
// MemoryRequest: a request for memory for a call, which cannot wait forever.
// Thread-safe.
#ifndef SERVER_MEMORY_MEMORY_REQUEST_H_
#define SERVER_MEMORY_MEMORY_REQUEST_H_

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/alarm.h"
#include "server/memory/memory_budget.h"

namespace dcp::server {

// How long a call waits for memory: longer than a slow client takes for a
// chunk, shorter than people wait without a response.
inline constexpr absl::Duration kMaxMemoryWait = absl::Seconds(10);

class MemoryRequest : public std::enable_shared_from_this<MemoryRequest> {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<Reservation>)>;

  // Calls `done` once, perhaps before this returns, without holding a lock:
  // with the memory, with Unavailable and a retry-after if it was not available
  // within `max_wait`, or with ResourceExhausted if it can never be. Owners:
  // the caller, the alarm, and the budget's queue.
  static std::shared_ptr<MemoryRequest> Ask(MemoryBudget& budget,
                                            uint64_t bytes,
                                            absl::Duration max_wait, Done done);

  // Afterwards `done` is not called, unless it has been or is being called.
  void Cancel();

 private:
  MemoryRequest(MemoryBudget& budget, uint64_t bytes, Done done)
      : budget_(budget), bytes_(bytes), done_(std::move(done)) {}
  void Start(absl::Duration max_wait);
  // The first call ends the request; later ones find nothing to call.
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

#endif  // SERVER_MEMORY_MEMORY_REQUEST_H_
