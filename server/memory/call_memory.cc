#include "server/memory/call_memory.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/process/refusal.h"

namespace dcp::server {
namespace {

// About the time in which a stream sends a few windows.
constexpr int64_t kRetryAfterMs = 2000;

// The error for a client whose own budget is exhausted.
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

CallMemoryWish::CallMemoryWish(std::shared_ptr<ClientAccount> account,
                               MemoryBudget& budget, uint64_t bytes,
                               absl::Duration max_wait, Done done)
    : account_(std::move(account)),
      budget_(budget),
      bytes_(bytes),
      max_wait_(max_wait),
      done_(std::move(done)) {}

std::shared_ptr<CallMemoryWish> CallMemoryWish::Ask(
    std::shared_ptr<ClientAccount> account, MemoryBudget& budget,
    uint64_t bytes, absl::Duration max_wait, Done done) {
  std::shared_ptr<CallMemoryWish> wish(new CallMemoryWish(
      std::move(account), budget, bytes, max_wait, std::move(done)));
  wish->AskClient();
  return wish;
}

void CallMemoryWish::AskClient() {
  std::shared_ptr<MemoryWish> wish = MemoryWish::Ask(
      account_->memory(), bytes_, max_wait_,
      [self = shared_from_this()](absl::StatusOr<Reservation> memory) {
        if (memory.ok()) return self->AskServer(*std::move(memory));
        self->End(OwnLimitError(*self->account_, self->account_->memory(),
                                self->bytes_));
      });
  absl::MutexLock lock(&mutex_);
  if (done_ != nullptr && !asked_server_) wish_ = std::move(wish);
}

void CallMemoryWish::AskServer(Reservation of_client) {
  std::shared_ptr<MemoryWish> before;  // dropped without the lock
  {
    absl::MutexLock lock(&mutex_);
    asked_server_ = true;
    before = std::move(wish_);
  }
  std::shared_ptr<MemoryWish> wish = MemoryWish::Ask(
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
    if (!cancelled) wish_ = wish;
  }
  // Has no effect if the wish has ended.
  if (cancelled) wish->Cancel();
}

void CallMemoryWish::End(absl::StatusOr<CallMemory> result) {
  Done done;
  std::shared_ptr<MemoryWish> wish;  // dropped without the lock
  {
    absl::MutexLock lock(&mutex_);
    done = std::exchange(done_, nullptr);
    wish = std::move(wish_);
  }
  if (done != nullptr) done(std::move(result));
}

void CallMemoryWish::Cancel() {
  Done done;
  std::shared_ptr<MemoryWish> wish;
  {
    absl::MutexLock lock(&mutex_);
    done = std::exchange(done_, nullptr);
    wish = std::move(wish_);
  }
  if (wish != nullptr) wish->Cancel();
}

}  // namespace dcp::server
