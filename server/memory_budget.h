// MemoryBudget: the memory that all jobs and streams of a server share. Who
// wants some takes it before allocating and returns it after; the sum never
// exceeds the limit. First come, first served, so that a large wish is not
// starved by small ones. Thread-safe; never blocks. Outlives its reservations
// and the calls of Granted.
#ifndef SERVER_MEMORY_BUDGET_H_
#define SERVER_MEMORY_BUDGET_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace dcp::server {

// Wishes that may wait: each stream and each job has one at most, and the
// limits of both are far below.
inline constexpr uint64_t kMaxWaiting = 100'000;

class MemoryBudget;

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
  Reservation(MemoryBudget& budget, uint64_t bytes)
      : budget_(&budget), bytes_(bytes) {}

  MemoryBudget* budget_ = nullptr;
  uint64_t bytes_ = 0;
};

class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  ~MemoryBudget();
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // Calls `granted` once with the memory, without a lock held: before this
  // returns where there is enough and nobody waits, else in a thread that
  // returns memory or calls Request or Cancel. It may call Request and drop
  // its Reservation. Not called where this fails: InvalidArgument when
  // `bytes` is more than there can ever be; ResourceExhausted when kMaxWaiting
  // wait already. The ticket withdraws the wish (Cancel).
  using Granted = absl::AnyInvocable<void(Reservation)>;
  absl::StatusOr<uint64_t> Request(uint64_t bytes, Granted granted);
  // Withdraws a wish and destroys its `granted`. False: it was called, or is
  // being called.
  bool Cancel(uint64_t ticket);

  uint64_t limit_bytes() const { return limit_bytes_; }
  uint64_t used_bytes() const;
  uint64_t num_waiting() const;

 private:
  friend class Reservation;
  void Return(uint64_t bytes);
  void Grant();

  struct Wish {
    uint64_t ticket;
    uint64_t bytes;
    Granted granted;
  };

  const uint64_t limit_bytes_;
  mutable absl::Mutex mutex_;
  uint64_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool granting_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 1;
  std::deque<Wish> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp::server

#endif  // SERVER_MEMORY_BUDGET_H_
