// SPDX-License-Identifier: Apache-2.0
// JobWatch: follows one job for one call: says when to look at the job again,
// and lets the call answer from one thread at a time, although changes,
// finished writes, alarms and cancellation come from many. Owners: the call,
// until it is over, and each notification while it lasts. Thread-safe; calls
// without holding a lock.
#ifndef SERVER_JOBS_JOB_WATCH_H_
#define SERVER_JOBS_JOB_WATCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "server/access/access.h"
#include "server/jobs/job_manager.h"

namespace dcp::server {

class JobWatch {
 public:
  // Called after the job has changed or Wake was called. Never called
  // concurrently: the next call comes only after Continue. `cancelled`: Cancel
  // was called.
  using Look = std::function<void(bool cancelled)>;

  // The first look happens before this returns. On an error, which is that of
  // JobManager::Watch, there is no look. `manager` and `client` outlive the
  // watch.
  static absl::Status Begin(JobManager& manager, const Client& client,
                            absl::string_view name, Look look,
                            std::shared_ptr<JobWatch>& watch);

  // Ends a look. If another was requested during it, that follows at once. A
  // call that has given the last answer does not call this.
  void Continue();
  // Requests a look.
  void Wake();
  void Cancel();
  // Starts no further look, though one may be in progress. Destroys `look`.
  void End();

 private:
  JobWatch(JobManager& manager, Look look)
      : manager_(manager), look_(std::move(look)) {}

  void LookNow();

  JobManager& manager_;
  absl::Mutex mutex_;
  Look look_ ABSL_GUARDED_BY(mutex_);
  uint64_t watcher_ ABSL_GUARDED_BY(mutex_) = 0;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;   // a look is in progress
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;  // another look is requested
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace dcp::server

#endif  // SERVER_JOBS_JOB_WATCH_H_
