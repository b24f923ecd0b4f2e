// CallMemory: memory of a call, counted for its client and for the server. A
// call takes it before allocating and returns it after. Move-only.
#ifndef SERVER_CALL_MEMORY_H_
#define SERVER_CALL_MEMORY_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/client_account.h"
#include "server/memory_budget.h"
#include "server/memory_wish.h"

namespace dcp::server {

struct CallMemory {
  CallMemory() = default;
  CallMemory(CallMemory&&) = default;
  CallMemory& operator=(CallMemory&& other) noexcept;

  // Outlives what is of it. Owners: this, and other memory of the client.
  std::shared_ptr<ClientAccount> account;
  Reservation of_client;
  Reservation of_server;
};

// A wish for it: first for the client's share, so that one client does not fill
// the queue in which all wait for the server's. Thread-safe.
class CallMemoryWish : public std::enable_shared_from_this<CallMemoryWish> {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<CallMemory>)>;

  // Calls `done` once, perhaps before this returns, without a lock held: with
  // the memory; or with an error and a retry-after when it was not there after
  // `max_wait`, ResourceExhausted where the client itself has it, Unavailable
  // where others have it. Owners: the caller, and who waits for the memory.
  static std::shared_ptr<CallMemoryWish> Ask(
      std::shared_ptr<ClientAccount> account, MemoryBudget& budget,
      uint64_t bytes, absl::Duration max_wait, Done done);

  // `done` is not called any more, unless it was or is being called.
  void Cancel();

 private:
  CallMemoryWish(std::shared_ptr<ClientAccount> account, MemoryBudget& budget,
                 uint64_t bytes, absl::Duration max_wait, Done done);
  void AskClient();
  void AskServer(Reservation of_client);
  void End(absl::StatusOr<CallMemory> result);

  const std::shared_ptr<ClientAccount> account_;
  MemoryBudget& budget_;
  const uint64_t bytes_;
  const absl::Duration max_wait_;
  absl::Mutex mutex_;
  Done done_ ABSL_GUARDED_BY(mutex_);
  // The one that goes on: of the client, then of the server.
  std::shared_ptr<MemoryWish> wish_ ABSL_GUARDED_BY(mutex_);
  bool asked_server_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace dcp::server

#endif  // SERVER_CALL_MEMORY_H_
