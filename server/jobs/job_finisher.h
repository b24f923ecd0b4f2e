// SPDX-License-Identifier: Apache-2.0
// JobFinisher: records how jobs end: first in the journal, then in the table,
// the metrics and the log, and tells the watchers; and deletes ended jobs that
// are too old or too many. Thread-safe; blocks for the journal.
#ifndef SERVER_JOBS_JOB_FINISHER_H_
#define SERVER_JOBS_JOB_FINISHER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "server/jobs/job_entry.h"
#include "server/jobs/job_journal.h"
#include "server/jobs/job_table.h"
#include "server/jobs/job_watchers.h"
#include "server/options/server_options.h"
#include "server/process/metrics.h"

namespace dcp::server {

class JobFinisher {
 public:
  // All references outlive this.
  JobFinisher(JobTable& jobs, JobJournal& journal, JobWatchers& watchers,
              Metrics& metrics, const ServerOptions& options)
      : jobs_(jobs),
        journal_(journal),
        watchers_(watchers),
        metrics_(metrics),
        options_(options) {}

  // Ends a job that holds no memory. Nobody is told before the journal has
  // recorded it; if the journal cannot, the end is kept for FinishUnkept, and
  // this returns false.
  bool Finish(const JobEntryPtr& entry,
              const absl::StatusOr<std::string>& response)
      ABSL_LOCKS_EXCLUDED(jobs_.mutex());
  // Tries again to end the jobs that the journal could not take.
  void FinishUnkept() ABSL_LOCKS_EXCLUDED(jobs_.mutex());
  // The caller holds the table's lock. The compiler cannot see that this is the
  // lock of the caller's own table, so this is checked at run time.
  bool has_unkept() const {
    jobs_.mutex().AssertHeld();
    return !unkept_.empty();
  }

  void Prune() ABSL_LOCKS_EXCLUDED(jobs_.mutex());

 private:
  JobTable& jobs_;
  JobJournal& journal_;
  JobWatchers& watchers_;
  Metrics& metrics_;
  const ServerOptions& options_;
  std::vector<std::pair<JobEntryPtr, absl::StatusOr<std::string>>> unkept_
      ABSL_GUARDED_BY(jobs_.mutex());
};

}  // namespace dcp::server

#endif  // SERVER_JOBS_JOB_FINISHER_H_
