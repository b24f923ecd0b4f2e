#include "server/memory_budget.h"

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"

namespace dcp::server {

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  MemoryBudget* const budget = std::exchange(budget_, nullptr);
  const uint64_t bytes = std::exchange(bytes_, 0);
  std::swap(budget_, other.budget_);
  std::swap(bytes_, other.bytes_);
  if (budget != nullptr) budget->Return(bytes);
  return *this;
}

Reservation::~Reservation() {
  if (budget_ != nullptr) budget_->Return(bytes_);
}

MemoryBudget::~MemoryBudget() {
  absl::MutexLock lock(&mutex_);
  DCP_CHECK(used_bytes_ == 0 && !granting_, used_bytes_, " bytes not returned");
}

absl::StatusOr<uint64_t> MemoryBudget::Request(uint64_t bytes,
                                               Granted granted) {
  if (bytes > limit_bytes_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "memory of ", bytes, " bytes exceeds the server's ", limit_bytes_));
  }
  uint64_t ticket;
  {
    absl::MutexLock lock(&mutex_);
    if (waiting_.size() >= kMaxWaiting) {
      return absl::ResourceExhaustedError(absl::StrCat(
          kMaxWaiting, " jobs and streams wait for memory already"));
    }
    ticket = next_ticket_++;
    waiting_.push_back({ticket, bytes, std::move(granted)});
  }
  Grant();
  return ticket;
}

bool MemoryBudget::Cancel(uint64_t ticket) {
  // Destroyed without the lock: what it holds may be memory of ours.
  std::optional<Granted> withdrawn;
  {
    absl::MutexLock lock(&mutex_);
    for (auto wish = waiting_.begin(); wish != waiting_.end(); ++wish) {
      if (wish->ticket != ticket) continue;
      withdrawn = std::move(wish->granted);
      waiting_.erase(wish);
      break;
    }
  }
  // Those behind it may have waited for this one only.
  if (withdrawn.has_value()) Grant();
  return withdrawn.has_value();
}

void MemoryBudget::Return(uint64_t bytes) {
  {
    absl::MutexLock lock(&mutex_);
    DCP_CHECK(bytes <= used_bytes_, bytes, " of ", used_bytes_);
    used_bytes_ -= bytes;
  }
  Grant();
}

// One thread grants at a time: what is returned meanwhile, also by `granted`
// itself, is seen by its loop. So nothing recurses and the order is kept.
void MemoryBudget::Grant() {
  absl::MutexLock lock(&mutex_);
  if (granting_) return;
  granting_ = true;
  while (!waiting_.empty() &&
         waiting_.front().bytes <= limit_bytes_ - used_bytes_) {
    Wish wish = std::move(waiting_.front());
    waiting_.pop_front();
    used_bytes_ += wish.bytes;
    mutex_.Unlock();
    wish.granted(Reservation(*this, wish.bytes));
    wish.granted = nullptr;
    mutex_.Lock();
  }
  granting_ = false;
}

uint64_t MemoryBudget::used_bytes() const {
  absl::MutexLock lock(&mutex_);
  return used_bytes_;
}

uint64_t MemoryBudget::num_waiting() const {
  absl::MutexLock lock(&mutex_);
  return waiting_.size();
}

}  // namespace dcp::server
