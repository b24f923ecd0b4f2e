// SPDX-License-Identifier: Apache-2.0
// JobWatchers: tells watchers when a job changes. Thread-safe; calls watchers
// without holding a lock.
#ifndef SERVER_JOBS_JOB_WATCHERS_H_
#define SERVER_JOBS_JOB_WATCHERS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/jobs/job.h"

namespace dcp::server {

// For one job: each watcher is a stream that a client keeps open.
inline constexpr size_t kMaxWatchers = 100;

class JobWatchers {
 public:
  // Called by any thread without a lock held; must not block. May be called
  // once more after Remove, so it must keep everything that it uses alive.
  using Changed = std::function<void()>;

  // Returns a number for Remove. ResourceExhausted beyond kMaxWatchers.
  absl::StatusOr<uint64_t> Add(const Job& job, Changed changed);
  void Remove(uint64_t watcher);

  // Tells the watchers of the job with this number.
  void Notify(int64_t job);
  void NotifyAll();

 private:
  absl::Mutex mutex_;
  // The watchers of each watched job, by number.
  std::map<int64_t, std::map<uint64_t, Changed>> by_job_
      ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, int64_t> job_of_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_watcher_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace dcp::server

#endif  // SERVER_JOBS_JOB_WATCHERS_H_
