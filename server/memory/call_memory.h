// SPDX-License-Identifier: Apache-2.0
// CallMemory: memory for one call, counted both for the client and for the
// server. A call reserves it before it allocates and returns it afterwards.
// Move-only.
#ifndef SERVER_MEMORY_CALL_MEMORY_H_
#define SERVER_MEMORY_CALL_MEMORY_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/memory/client_account.h"
#include "server/memory/memory_budget.h"
#include "server/memory/memory_request.h"

namespace dcp::server {

struct CallMemory {
  CallMemory() = default;
  CallMemory(CallMemory&&) = default;
  CallMemory& operator=(CallMemory&& other) noexcept;

  // Outlives `of_client`. Owners: this, and other memory of the client.
  std::shared_ptr<ClientAccount> account;
  Reservation of_client;
  Reservation of_server;
};

// A pending request for CallMemory. It asks for the client's share first, so
// that one client does not fill the queue in which all clients wait for the
// server's memory. Thread-safe.
class CallMemoryRequest
    : public std::enable_shared_from_this<CallMemoryRequest> {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<CallMemory>)>;

  // Calls `done` once, perhaps before this returns, without holding a lock:
  // with the memory, or with an error and a retry-after if it was not available
  // within `max_wait`: ResourceExhausted if the client itself uses it,
  // Unavailable if others do. Owners: the caller, and the budgets that it waits
  // for.
  static std::shared_ptr<CallMemoryRequest> Ask(
      std::shared_ptr<ClientAccount> account, MemoryBudget& budget,
      uint64_t bytes, absl::Duration max_wait, Done done);

  // Afterwards `done` is not called, unless it has been or is being called.
  void Cancel();

 private:
  CallMemoryRequest(std::shared_ptr<ClientAccount> account,
                    MemoryBudget& budget, uint64_t bytes,
                    absl::Duration max_wait, Done done);
  void AskClient();
  void AskServer(Reservation of_client);
  void End(absl::StatusOr<CallMemory> result);

  const std::shared_ptr<ClientAccount> account_;
  MemoryBudget& budget_;
  const uint64_t bytes_;
  const absl::Duration max_wait_;
  absl::Mutex mutex_;
  Done done_ ABSL_GUARDED_BY(mutex_);
  // The request in progress: first for the client's memory, then for the
  // server's.
  std::shared_ptr<MemoryRequest> request_ ABSL_GUARDED_BY(mutex_);
  bool asked_server_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace dcp::server

#endif  // SERVER_MEMORY_CALL_MEMORY_H_
