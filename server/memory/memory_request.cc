// SPDX-License-Identifier: Apache-2.0

#include "server/memory/memory_request.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/error_detail.h"
#include "proto/rpc_status.h"
#include "proto/rpc_time.h"
#include "server/process/refusal.h"

namespace dcp::server {
namespace {}  // namespace

std::shared_ptr<MemoryRequest> MemoryRequest::Ask(MemoryBudget& budget,
                                                  uint64_t bytes,
                                                  absl::Duration max_wait,
                                                  Done done) {
  std::shared_ptr<MemoryRequest> request(
      new MemoryRequest(budget, bytes, std::move(done)));
  request->Start(max_wait);
  return request;
}

void MemoryRequest::Start(absl::Duration max_wait) {
  absl::StatusOr<uint64_t> ticket =
      budget_.Request(MemoryUse::kCall, bytes_,
                      [self = shared_from_this()](Reservation reservation) {
                        self->End(std::move(reservation));
                      });
  if (!ticket.ok()) {
    return End(absl::IsInvalidArgument(ticket.status())
                   ? RequestTooLarge("max-memory", budget_.limit_bytes(),
                                     ticket.status().message())
                   : ticket.status());
  }
  absl::MutexLock lock(&mutex_);
  if (done_ == nullptr) return;  // it has ended already
  ticket_ = *ticket;
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(RpcTimeIn(max_wait), [self = shared_from_this()](bool expired) {
    if (!expired) return;
    self->End(WithReason(
        WithRetryAfter(absl::UnavailableError(absl::StrCat(
                           "the memory of the server is in use: ", self->bytes_,
                           " bytes were requested")),
                       kRetryAfterMs),
        ErrorReason::MEMORY_IN_USE, {{"value", absl::StrCat(self->bytes_)}}));
  });
}

void MemoryRequest::Cancel() { TakeDone() = nullptr; }

MemoryRequest::Done MemoryRequest::TakeDone() {
  Done done;
  uint64_t ticket = 0;
  std::unique_ptr<grpc::Alarm> alarm;
  {
    absl::MutexLock lock(&mutex_);
    done = std::exchange(done_, nullptr);
    ticket = std::exchange(ticket_, 0);
    alarm = std::move(alarm_);
  }
  // Either may call back, but this request has ended by now.
  if (ticket != 0) budget_.Cancel(ticket);
  return done;
}

void MemoryRequest::End(absl::StatusOr<Reservation> result) {
  Done done = TakeDone();
  if (done != nullptr) done(std::move(result));
}

}  // namespace dcp::server
