// SPDX-License-Identifier: Apache-2.0
// JobTable: the jobs that the server knows, and indices of them: by name, by
// the client's request_id, by the destination if they have not ended, and by
// the end if they have. It knows who may see a job, and decides nothing else.
// The lock guards the table and all entries; callers hold it where a method
// says so, and never while they block or call out.
#ifndef SERVER_JOBS_JOB_TABLE_H_
#define SERVER_JOBS_JOB_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/access/access.h"
#include "server/jobs/job_entry.h"
#include "server/jobs/job_filter.h"

namespace dcp::server {

// Jobs that are matched with a filter before the lock is released for others.
inline constexpr size_t kJobsPerLook = 100;

class JobTable {
 public:
  absl::Mutex& mutex() const ABSL_LOCK_RETURNED(mutex_) { return mutex_; }

  void Insert(const JobEntryPtr& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves a job to those that have ended. state and end_time are set.
  void End(JobEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes a job that has ended; a second time is harmless.
  void Forget(const JobEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The job with this number must be there.
  const JobEntryPtr& At(int64_t number) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return entries_.at(number);
  }
  // The job with this name. NotFound if there is none that the client may see,
  // InvalidArgument if it is not a name.
  absl::StatusOr<JobEntryPtr> Find(const Client& client,
                                   absl::string_view name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The client's job with this request_id, which may be empty; null if there is
  // none.
  JobEntryPtr FindRequest(const std::string& client,
                          const std::string& request_id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The job that has not ended and writes there; null if there is none.
  JobEntryPtr FindWriter(const std::string& destination) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The client's jobs that have not ended.
  int64_t num_live(const std::string& client) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The job to delete next: one that ended before `oldest`, or, if more than
  // `max_ended` have ended, the oldest job of the client that has the most;
  // null if there is none.
  JobEntryPtr NextToForget(absl::Time oldest, int64_t max_ended) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // When the oldest job that has not begun was submitted; InfiniteFuture if
  // there is none.
  absl::Time OldestWaiting() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<JobEntryPtr> Waiting() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsAnyAdmitting() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The matching jobs that the client may see, with numbers above `after`, in
  // the order of creation; at most `most`.
  std::vector<JobEntryPtr> Choose(const Client& client, const JobFilter& filter,
                                  int64_t after, size_t most) const
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  std::map<int64_t, JobEntryPtr> entries_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> by_id_ ABSL_GUARDED_BY(mutex_);
  // Key: client and request_id.
  std::map<std::pair<std::string, std::string>, int64_t> by_request_id_
      ABSL_GUARDED_BY(mutex_);
  // For jobs that have not ended: the job that owns a destination, and how many
  // jobs each client has.
  std::map<std::string, int64_t> by_destination_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> num_live_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<absl::Time, int64_t>> ended_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> num_ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp::server

#endif  // SERVER_JOBS_JOB_TABLE_H_
