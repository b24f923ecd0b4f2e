// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/job_watch.h"

#include <utility>

#include "dcp/base/status.h"

namespace dcp::server {

absl::Status JobWatch::Begin(JobManager& manager, const Client& client,
                             absl::string_view name, Look look,
                             std::shared_ptr<JobWatch>& watch) {
  std::shared_ptr<JobWatch> self(new JobWatch(manager, std::move(look)));
  {
    // Delays notifications until the first look below.
    absl::MutexLock lock(&self->mutex_);
    self->busy_ = true;
  }
  DCP_ASSIGN_OR_RETURN(
      const uint64_t watcher,
      manager.Watch(client, name, [weak = std::weak_ptr<JobWatch>(self)] {
        const std::shared_ptr<JobWatch> alive = weak.lock();
        if (alive != nullptr) alive->Wake();
      }));
  {
    absl::MutexLock lock(&self->mutex_);
    self->watcher_ = watcher;
  }
  watch = self;
  self->LookNow();
  return absl::OkStatus();
}

void JobWatch::Wake() {
  {
    absl::MutexLock lock(&mutex_);
    asked_ = true;
    if (busy_) return;
    busy_ = true;
  }
  LookNow();
}

void JobWatch::Cancel() {
  {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
  }
  Wake();
}

void JobWatch::Continue() {
  {
    absl::MutexLock lock(&mutex_);
    if (!asked_) {
      busy_ = false;
      return;
    }
  }
  LookNow();
}

void JobWatch::LookNow() {
  Look look;
  bool cancelled = false;
  {
    absl::MutexLock lock(&mutex_);
    asked_ = false;
    cancelled = cancelled_;
    look = look_;
  }
  if (look != nullptr) look(cancelled);
}

void JobWatch::End() {
  Look look;  // destroyed without the lock
  uint64_t watcher = 0;
  {
    absl::MutexLock lock(&mutex_);
    look = std::exchange(look_, nullptr);
    watcher = watcher_;
  }
  manager_.Unwatch(watcher);
}

}  // namespace dcp::server
