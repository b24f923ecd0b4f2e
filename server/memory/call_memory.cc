// SPDX-License-Identifier: Apache-2.0

#include "server/memory/call_memory.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/process/refusal.h"

namespace dcp::server {
namespace {

// The error for a client that has used up the client's own budget.
absl::Status OwnLimitError(const ClientAccount& account, MemoryBudget& memory,
                           uint64_t bytes) {
  return LimitReached(
      {.name = "client-memory",
       .value = memory.limit_bytes(),
       .retry_after_ms = kRetryAfterMs},
      absl::StrCat("the calls of ", account.name(), " have ",
                   memory.used_bytes(), " bytes of memory and this one takes ",
                   bytes, ": one client may have ", memory.limit_bytes(),
                   " (client-memory); read streams to their end, or begin "
                   "fewer at a time"));
}

}  // namespace

// The account is released last, after all memory that belongs to it.
CallMemory& CallMemory::operator=(CallMemory&& other) noexcept {
  of_server = std::move(other.of_server);
  of_client = std::move(other.of_client);
  account = std::move(other.account);
  return *this;
}

CallMemoryRequest::CallMemoryRequest(std::shared_ptr<ClientAccount> account,
                                     MemoryBudget& budget, uint64_t bytes,
                                     absl::Duration max_wait, Done done)
    : account_(std::move(account)),
      budget_(budget),
      bytes_(bytes),
      max_wait_(max_wait),
      done_(std::move(done)) {}

std::shared_ptr<CallMemoryRequest> CallMemoryRequest::Ask(
    std::shared_ptr<ClientAccount> account, MemoryBudget& budget,
    uint64_t bytes, absl::Duration max_wait, Done done) {
  std::shared_ptr<CallMemoryRequest> request(new CallMemoryRequest(
      std::move(account), budget, bytes, max_wait, std::move(done)));
  request->AskClient();
  return request;
}

void CallMemoryRequest::AskClient() {
  std::shared_ptr<MemoryRequest> request = MemoryRequest::Ask(
      account_->memory(), bytes_, max_wait_,
      [self = shared_from_this()](absl::StatusOr<Reservation> memory) {
        if (memory.ok()) return self->AskServer(*std::move(memory));
        self->End(OwnLimitError(*self->account_, self->account_->memory(),
                                self->bytes_));
      });
  absl::MutexLock lock(&mutex_);
  if (done_ != nullptr && !asked_server_) request_ = std::move(request);
}

void CallMemoryRequest::AskServer(Reservation of_client) {
  std::shared_ptr<MemoryRequest> before;  // dropped without the lock
  {
    absl::MutexLock lock(&mutex_);
    asked_server_ = true;
    before = std::move(request_);
  }
  std::shared_ptr<MemoryRequest> request = MemoryRequest::Ask(
      budget_, bytes_, max_wait_,
      [self = shared_from_this(), of_client = std::move(of_client)](
          absl::StatusOr<Reservation> memory) mutable {
        if (!memory.ok()) return self->End(memory.status());
        CallMemory all;
        all.account = self->account_;
        all.of_client = std::move(of_client);
        all.of_server = *std::move(memory);
        self->End(std::move(all));
      });
  bool cancelled = false;
  {
    absl::MutexLock lock(&mutex_);
    cancelled = done_ == nullptr;
    if (!cancelled) request_ = request;
  }
  // Has no effect if the request has ended.
  if (cancelled) request->Cancel();
}

void CallMemoryRequest::End(absl::StatusOr<CallMemory> result) {
  Done done;
  std::shared_ptr<MemoryRequest> request;  // dropped without the lock
  {
    absl::MutexLock lock(&mutex_);
    done = std::exchange(done_, nullptr);
    request = std::move(request_);
  }
  if (done != nullptr) done(std::move(result));
}

void CallMemoryRequest::Cancel() {
  Done done;
  std::shared_ptr<MemoryRequest> request;
  {
    absl::MutexLock lock(&mutex_);
    done = std::exchange(done_, nullptr);
    request = std::move(request_);
  }
  if (request != nullptr) request->Cancel();
}

}  // namespace dcp::server
