// JobWatch: follows one job for one call: says when to look at it again, and
// lets the call answer from one thread at a time, though changes, finished
// writes, alarms and cancellation come from many. Owned by shared_ptr: the call
// has one until it is over, each notification another while it lasts.
// Thread-safe; holds no lock while it calls.
#ifndef SERVER_JOB_WATCH_H_
#define SERVER_JOB_WATCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "server/access.h"
#include "server/job_manager.h"

namespace dcp::server {

class JobWatch {
 public:
  // Called when the job has changed or Wake was called, never twice at once:
  // not again before Continue. `cancelled`: Cancel was called.
  using Look = std::function<void(bool cancelled)>;

  // The first look comes before this returns. The errors of JobManager::Watch,
  // without any look. `manager` and `client` outlive the watch.
  static absl::Status Begin(JobManager& manager, const Client& client,
                            absl::string_view name, Look look,
                            std::shared_ptr<JobWatch>& watch);

  // Ends a look; another follows at once if one was asked for meanwhile. A call
  // that has given its last answer does not continue.
  void Continue();
  // Asks for a look.
  void Wake();
  void Cancel();
  // No look comes any more, but one may be under way. What `look` holds is let
  // go.
  void End();

 private:
  JobWatch(JobManager& manager, Look look)
      : manager_(manager), look_(std::move(look)) {}

  void LookNow();

  JobManager& manager_;
  absl::Mutex mutex_;
  Look look_ ABSL_GUARDED_BY(mutex_);
  uint64_t watcher_ ABSL_GUARDED_BY(mutex_) = 0;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;   // a look goes on
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;  // for another
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace dcp::server

#endif  // SERVER_JOB_WATCH_H_
