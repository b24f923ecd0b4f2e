// MemoryBudget: the memory that all jobs and calls of a server share. Who wants
// some takes it before allocating and returns it after; the sum never exceeds
// the limit. Thread-safe; never blocks. Outlives its reservations and the calls
// of Granted.
//
// Jobs leave a share to calls, so that a job that runs for hours stops no call;
// calls have more than their share only while no job waits. Of jobs, and of
// calls, the first come is served first: a smaller wish that fits overtakes a
// larger one that does not, but each is overtaken kMaxOvertaken times at most,
// so that neither waits for the other without end.
#ifndef SERVER_MEMORY_BUDGET_H_
#define SERVER_MEMORY_BUDGET_H_

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

// Wishes that may wait: each stream and each job has one at most, and the
// limits of both are far below.
inline constexpr uint64_t kMaxWaiting = 100'000;

// Smaller wishes that a waiting one lets pass.
inline constexpr int kMaxOvertaken = 16;

class MemoryBudget;

enum class MemoryUse : uint8_t {
  kCall,  // seconds, or as long as a client reads
  kJob,   // hours
};

// Memory that was taken; the destructor gives it back. An empty one holds none.
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
  // `calls_bytes` of the limit are left to calls.
  explicit MemoryBudget(uint64_t limit_bytes, uint64_t calls_bytes = 0);
  ~MemoryBudget();
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // Memory of calls that comes back only when the budget is about to end, as
  // that of threads. It must be there: nobody asks before.
  Reservation Keep(uint64_t bytes);

  // Calls `granted` once with the memory, without a lock held: before this
  // returns where there is enough and nobody waits, else in a thread that
  // returns memory or calls Request or Cancel. It may call Request and drop
  // its Reservation. Not called where this fails: InvalidArgument when
  // `bytes` is more than there can ever be for this use; ResourceExhausted when
  // kMaxWaiting wait already. The ticket withdraws the wish (Cancel).
  using Granted = absl::AnyInvocable<void(Reservation)>;
  absl::StatusOr<uint64_t> Request(MemoryUse use, uint64_t bytes,
                                   Granted granted);
  // Withdraws a wish and destroys its `granted`. False: it was called, or is
  // being called.
  bool Cancel(uint64_t ticket);

  uint64_t limit_bytes() const { return limit_bytes_; }
  uint64_t used_bytes() const;
  uint64_t num_waiting() const;

 private:
  friend class Reservation;
  struct Wish {
    uint64_t ticket;
    uint64_t bytes;
    Granted granted;
    int num_overtaken = 0;
  };
  // Of one use.
  struct Share {
    uint64_t used_bytes = 0;
    std::deque<Wish> waiting;
  };

  Share& ShareOf(MemoryUse use) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return use == MemoryUse::kJob ? jobs_ : calls_;
  }
  uint64_t MostFor(MemoryUse use) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Fits(MemoryUse use, uint64_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The next wish of that use that is to be granted, taken from the queue.
  std::optional<Wish> TakeNext(MemoryUse use)
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

#endif  // SERVER_MEMORY_BUDGET_H_
