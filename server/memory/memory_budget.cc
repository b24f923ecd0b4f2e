// SPDX-License-Identifier: Apache-2.0

#include "server/memory/memory_budget.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"
#include "server/process/refusal.h"

namespace dcp::server {
namespace {

// How many waiting requests are searched for one that fits; many may wait.
constexpr size_t kMaxSearched = 64;

}  // namespace

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  MemoryBudget* const budget = std::exchange(budget_, nullptr);
  const uint64_t bytes = std::exchange(bytes_, 0);
  const MemoryUse use = use_;
  std::swap(budget_, other.budget_);
  std::swap(bytes_, other.bytes_);
  use_ = other.use_;
  if (budget != nullptr) budget->Return(use, bytes);
  return *this;
}

Reservation::~Reservation() {
  if (budget_ != nullptr) budget_->Return(use_, bytes_);
}

MemoryBudget::MemoryBudget(uint64_t limit_bytes, uint64_t calls_bytes)
    : limit_bytes_(limit_bytes), calls_bytes_(calls_bytes) {
  DCP_CHECK(calls_bytes <= limit_bytes, calls_bytes, " of ", limit_bytes);
}

MemoryBudget::~MemoryBudget() {
  absl::MutexLock lock(&mutex_);
  DCP_CHECK(calls_.used_bytes == 0 && jobs_.used_bytes == 0 && !granting_,
            calls_.used_bytes, " and ", jobs_.used_bytes,
            " bytes not returned");
}

Reservation MemoryBudget::Keep(uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  DCP_CHECK(Fits(MemoryUse::kCall, bytes), bytes, " of ", limit_bytes_);
  calls_.used_bytes += bytes;
  kept_bytes_ += bytes;
  return Reservation(*this, MemoryUse::kCall, bytes);
}

uint64_t MemoryBudget::MostFor(MemoryUse use) const {
  return limit_bytes_ - (use == MemoryUse::kJob ? calls_bytes_ : kept_bytes_);
}

bool MemoryBudget::Fits(MemoryUse use, uint64_t bytes) const {
  const uint64_t used_bytes = calls_.used_bytes + jobs_.used_bytes;
  if (bytes > limit_bytes_ - used_bytes) return false;
  if (use == MemoryUse::kJob) {
    return jobs_.used_bytes + bytes <= limit_bytes_ - calls_bytes_;
  }
  return jobs_.waiting.empty() || calls_.used_bytes + bytes <= calls_bytes_;
}

absl::StatusOr<uint64_t> MemoryBudget::Request(MemoryUse use, uint64_t bytes,
                                               Granted granted) {
  uint64_t ticket;
  {
    absl::MutexLock lock(&mutex_);
    if (bytes > MostFor(use)) {
      return absl::InvalidArgumentError(
          absl::StrCat("memory of ", bytes, " bytes exceeds the ", MostFor(use),
                       " bytes that the server has for ",
                       use == MemoryUse::kJob ? "jobs" : "calls"));
    }
    Share& share = ShareFor(use);
    if (share.waiting.size() >= kMaxWaiting) {
      return LimitReached(
          {.name = "memory-waiting", .value = kMaxWaiting},
          absl::StrCat(kMaxWaiting, " jobs or calls already wait for memory"));
    }
    ticket = next_ticket_++;
    share.waiting.push_back({ticket, bytes, std::move(granted)});
  }
  Grant();
  return ticket;
}

bool MemoryBudget::Cancel(uint64_t ticket) {
  // Destroyed without the lock, because it may hold memory of this budget.
  std::optional<Granted> withdrawn;
  {
    absl::MutexLock lock(&mutex_);
    for (Share* const share : {&calls_, &jobs_}) {
      for (auto request = share->waiting.begin();
           request != share->waiting.end(); ++request) {
        if (request->ticket != ticket) continue;
        withdrawn = std::move(request->granted);
        share->waiting.erase(request);
        break;
      }
    }
  }
  // Requests behind it may have waited only for this one.
  if (withdrawn.has_value()) Grant();
  return withdrawn.has_value();
}

void MemoryBudget::Return(MemoryUse use, uint64_t bytes) {
  {
    absl::MutexLock lock(&mutex_);
    Share& share = ShareFor(use);
    DCP_CHECK(bytes <= share.used_bytes, bytes, " of ", share.used_bytes);
    share.used_bytes -= bytes;
  }
  Grant();
}

std::optional<MemoryBudget::WaitingRequest> MemoryBudget::TakeNext(
    MemoryUse use) {
  std::deque<WaitingRequest>& waiting = ShareFor(use).waiting;
  const auto end = waiting.begin() + static_cast<std::ptrdiff_t>(std::min(
                                         waiting.size(), kMaxSearched));
  for (auto request = waiting.begin(); request != end; ++request) {
    if (Fits(use, request->bytes)) {
      for (auto before = waiting.begin(); before != request; ++before) {
        ++before->num_overtaken;
      }
      WaitingRequest taken = std::move(*request);
      waiting.erase(request);
      return taken;
    }
    if (request->num_overtaken >= kMaxOvertaken) break;
  }
  return std::nullopt;
}

// Grants on one thread at a time. The loop notices memory that is returned
// while this runs, even by `granted` itself, so nothing recurses and the order
// is kept.
void MemoryBudget::Grant() {
  absl::MutexLock lock(&mutex_);
  if (granting_) return;
  granting_ = true;
  while (true) {
    MemoryUse use = MemoryUse::kJob;
    std::optional<WaitingRequest> request = TakeNext(use);
    if (!request.has_value()) {
      use = MemoryUse::kCall;
      request = TakeNext(use);
    }
    if (!request.has_value()) break;
    ShareFor(use).used_bytes += request->bytes;
    mutex_.Unlock();
    request->granted(Reservation(*this, use, request->bytes));
    request = std::nullopt;
    mutex_.Lock();
  }
  granting_ = false;
}

uint64_t MemoryBudget::used_bytes() const {
  absl::MutexLock lock(&mutex_);
  return calls_.used_bytes + jobs_.used_bytes;
}

uint64_t MemoryBudget::num_waiting() const {
  absl::MutexLock lock(&mutex_);
  return calls_.waiting.size() + jobs_.waiting.size();
}

}  // namespace dcp::server
