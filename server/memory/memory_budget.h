// SPDX-License-Identifier: Apache-2.0
// MemoryBudget: the memory that all jobs and calls of a server share. Users
// reserve memory before they allocate it and return it afterwards; the sum
// never exceeds the limit. Thread-safe; never blocks. Outlives the reservations
// and the calls of Granted.
//
// Jobs leave a share to calls, so that a job of several hours does not stop
// calls; calls get more than their share only while no job waits. Among jobs,
// and among calls, requests are served in order, with one exception: a smaller
// request that fits overtakes a larger one that does not. Each is overtaken at
// most kMaxOvertaken times, so that none waits forever.
#ifndef SERVER_MEMORY_MEMORY_BUDGET_H_
#define SERVER_MEMORY_MEMORY_BUDGET_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace dcp::server {

// Limit on waiting requests. Each stream and each job has at most one, and the
// limits on both are far lower.
inline constexpr uint64_t kMaxWaiting = 100'000;

// How many smaller requests may overtake a waiting one.
inline constexpr int kMaxOvertaken = 16;

class MemoryBudget;

enum class MemoryUse : uint8_t {
  kCall,  // seconds, or as long as a client reads
  kJob,   // hours
};

// Reserved memory; the destructor returns it. An empty Reservation holds none.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();

  uint64_t bytes() const { return bytes_; }

 private:
  friend class MemoryBudget;
  Reservation(MemoryBudget& budget, MemoryUse use, uint64_t bytes)
      : budget_(&budget), use_(use), bytes_(bytes) {}

  MemoryBudget* budget_ = nullptr;
  MemoryUse use_ = MemoryUse::kCall;
  uint64_t bytes_ = 0;
};

class MemoryBudget {
 public:
  // `calls_bytes` of the limit are set aside for calls.
  explicit MemoryBudget(uint64_t limit_bytes, uint64_t calls_bytes = 0);
  ~MemoryBudget();
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // Reserves memory for calls that is returned only shortly before the budget
  // is destroyed, such as that of threads. It must be available: call this
  // before any Request.
  Reservation Keep(uint64_t bytes);

  // Calls `granted` once with the memory and without holding a lock: before
  // this returns if there is enough and nobody waits, otherwise on a thread
  // that returns memory or calls Request or Cancel. `granted` may call Request
  // and drop its Reservation. It is not called if this fails: InvalidArgument
  // if `bytes` is more than this use can ever get; ResourceExhausted if
  // kMaxWaiting requests are waiting. Pass the returned ticket to Cancel to
  // withdraw the request.
  using Granted = absl::AnyInvocable<void(Reservation)>;
  absl::StatusOr<uint64_t> Request(MemoryUse use, uint64_t bytes,
                                   Granted granted);
  // Withdraws a request and destroys `granted`. Returns false if `granted` has
  // been or is being called.
  bool Cancel(uint64_t ticket);

  uint64_t limit_bytes() const { return limit_bytes_; }
  uint64_t used_bytes() const;
  uint64_t num_waiting() const;

 private:
  friend class Reservation;
  struct WaitingRequest {
    uint64_t ticket;
    uint64_t bytes;
    Granted granted;
    int num_overtaken = 0;
  };
  // The state for one use.
  struct Share {
    uint64_t used_bytes = 0;
    std::deque<WaitingRequest> waiting;
  };

  Share& ShareFor(MemoryUse use) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return use == MemoryUse::kJob ? jobs_ : calls_;
  }
  uint64_t MostFor(MemoryUse use) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Fits(MemoryUse use, uint64_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the request to be granted next for that use from the queue.
  std::optional<WaitingRequest> TakeNext(MemoryUse use)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Return(MemoryUse use, uint64_t bytes);
  void Grant();

  const uint64_t limit_bytes_;
  const uint64_t calls_bytes_;
  mutable absl::Mutex mutex_;
  Share calls_ ABSL_GUARDED_BY(mutex_);
  Share jobs_ ABSL_GUARDED_BY(mutex_);
  uint64_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool granting_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace dcp::server

#endif  // SERVER_MEMORY_MEMORY_BUDGET_H_
