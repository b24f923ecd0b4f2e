// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/job_watchers.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/jobs/job_operation.h"
#include "server/process/refusal.h"

namespace dcp::server {

absl::StatusOr<uint64_t> JobWatchers::Add(const Job& job, Changed changed) {
  absl::MutexLock lock(&mutex_);
  const auto known = by_job_.find(job.number);
  if (known != by_job_.end() && known->second.size() >= kMaxWatchers) {
    return LimitReached({.name = "watchers", .value = kMaxWatchers},
                        absl::StrCat(OperationName(job), " is watched by ",
                                     kMaxWatchers, ", which is the limit"));
  }
  const uint64_t watcher = next_watcher_++;
  by_job_[job.number][watcher] = std::move(changed);
  job_of_[watcher] = job.number;
  return watcher;
}

void JobWatchers::Remove(uint64_t watcher) {
  Changed changed;  // destroyed without the lock
  absl::MutexLock lock(&mutex_);
  const auto found = job_of_.find(watcher);
  if (found == job_of_.end()) return;
  const auto watchers = by_job_.find(found->second);
  const auto own = watchers->second.find(watcher);
  changed = std::move(own->second);
  watchers->second.erase(own);
  if (watchers->second.empty()) by_job_.erase(watchers);
  job_of_.erase(found);
}

void JobWatchers::Notify(int64_t job) {
  std::vector<Changed> told;
  {
    absl::MutexLock lock(&mutex_);
    const auto watchers = by_job_.find(job);
    if (watchers == by_job_.end()) return;
    for (const auto& [watcher, changed] : watchers->second) {
      told.push_back(changed);
    }
  }
  for (const Changed& changed : told) changed();
}

void JobWatchers::NotifyAll() {
  std::vector<Changed> told;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [job, watchers] : by_job_) {
      for (const auto& [watcher, changed] : watchers) told.push_back(changed);
    }
  }
  for (const Changed& changed : told) changed();
}

}  // namespace dcp::server
