// SPDX-License-Identifier: Apache-2.0
// JobManager: the operations of clients on jobs: submit, plan, get, list,
// cancel, delete and watch. Every change that a client may rely on is written
// to the journal first; JobScheduler decides when each job runs. Thread-safe;
// only Drain and the destructor wait for jobs. Only an admin sees the jobs of
// other clients; for others they are NotFound.
#ifndef SERVER_JOBS_JOB_MANAGER_H_
#define SERVER_JOBS_JOB_MANAGER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "dcp/base/steady_time.h"
#include "google/longrunning/operations_proto.pb.h"
#include "server/access/access.h"
#include "server/access/page_token.h"
#include "server/access/root_threads.h"
#include "server/jobs/job.h"
#include "server/jobs/job_entry.h"
#include "server/jobs/job_filter.h"
#include "server/jobs/job_journal.h"
#include "server/jobs/job_runner.h"
#include "server/jobs/job_scheduler.h"
#include "server/jobs/job_table.h"
#include "server/jobs/job_watchers.h"
#include "server/memory/memory_budget.h"
#include "server/options/server_options.h"
#include "server/process/metrics.h"

namespace dcp::server {

// Plans that may wait for a thread: each may read a large index, and the caller
// waits for it.
inline constexpr size_t kMaxWaitingPlans = 64;
// Operations on one page, and the bytes they may take in a message (gRPC's
// clients accept 4 MiB).
inline constexpr int kMaxJobsPerPage = 1000;
inline constexpr int kDefaultJobsPerPage = 100;
inline constexpr size_t kMaxPageBytes = size_t{2} << 20;

struct JobPage {
  std::vector<google::longrunning::Operation> operations;
  std::string next_page_token;  // empty on the last page
};

class JobManager {
 public:
  using Operation = google::longrunning::Operation;
  using Planned = std::function<void(absl::StatusOr<Operation>)>;

  // Queues the unfinished jobs of the journal again, and starts the threads.
  // All references outlive the manager.
  static absl::StatusOr<std::unique_ptr<JobManager>> Start(
      JobJournal& journal, const JobRunner& runner, MemoryBudget& budget,
      Metrics& metrics, const ServerOptions& options,
      uint64_t log_step_bytes = kConvertJournalStepBytes);
  // Calls Drain with an end that has passed.
  ~JobManager();
  JobManager(const JobManager&) = delete;
  JobManager& operator=(const JobManager&) = delete;

  // A second call with the same request_id and request returns the same job.
  // AlreadyExists for the same request_id with another request;
  // FailedPrecondition if another job writes to the same destination;
  // ResourceExhausted beyond a limit, Unavailable while draining, both with a
  // retry-after.
  absl::StatusOr<Operation> Submit(const Client& client, JobRequest request);

  // The work that the job would do, as a completed operation without a name.
  // `planned` is called once, by another thread, unless this fails: with
  // Cancelled soon after a stop is requested.
  absl::Status Plan(const Client& client, JobRequest request,
                    std::stop_token stop, Planned planned);

  absl::StatusOr<Operation> Get(const Client& client, absl::string_view name);
  // In the order of creation. InvalidArgument for a page token that is not from
  // this client, this filter and this manager.
  absl::StatusOr<JobPage> List(const Client& client, const JobFilter& filter,
                               int page_size, absl::string_view page_token);
  // The job soon ends as CANCELLED, unless it completes before. `call` is the
  // number of the call that asks for it, for the log.
  absl::Status Cancel(const Client& client, absl::string_view name,
                      absl::string_view call = "");
  // Deletes a job that has ended; FailedPrecondition if it has not.
  absl::Status Delete(const Client& client, absl::string_view name);

  // Calls `changed` after every change, every second while the job runs, and
  // perhaps once more after Unwatch, so `changed` must keep everything that it
  // uses alive. ResourceExhausted beyond kMaxWatchers.
  absl::StatusOr<uint64_t> Watch(const Client& client, absl::string_view name,
                                 JobWatchers::Changed changed);
  void Unwatch(uint64_t watcher) { watchers_.Remove(watcher); }

  // While `held`, no job begins; those that run go on.
  void Hold(bool held) { scheduler_.Hold(held); }

  // Accepts no more jobs, starts none, waits for the running ones, and stops
  // them at `end`, a time of SteadyNow: they continue after the next start. May
  // be called by several threads: the earliest end counts.
  void Drain(absl::Duration end) { scheduler_.Drain(end); }
  // Stops running jobs that their clients have lost the right to do; they fail.
  // Looks at the disk.
  void StopRevoked() { scheduler_.StopRevoked(); }
  bool draining() const { return scheduler_.draining(); }

  uint64_t num_running() const { return scheduler_.num_running(); }

 private:
  JobManager(JobJournal& journal, const JobRunner& runner, MemoryBudget& budget,
             Metrics& metrics, const ServerOptions& options,
             uint64_t log_step_bytes);

  // The existing job with this request_id, or null.
  absl::StatusOr<JobEntryPtr> CheckSubmit(const Client& client,
                                          const JobRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(submit_mutex_);
  // Counts a plan; ResourceExhausted if too many wait. EndPlan follows OK.
  absl::Status BeginPlan(const std::string& client);
  void EndPlan(const std::string& client);
  absl::Status CheckSame(const JobEntryPtr& entry, const JobRequest& request);
  absl::StatusOr<Operation> Snapshot(const JobEntryPtr& entry)
      ABSL_LOCKS_EXCLUDED(jobs_.mutex());

  JobJournal& journal_;
  const JobRunner& runner_;
  const ServerOptions& options_;
  const PageTokens page_tokens_;

  // Held while a job is checked against the others and written to the journal
  // (which takes one at a time anyway), so that of two calls with one
  // request_id only one finds it new. Acquired before the table's.
  absl::Mutex submit_mutex_;
  absl::Mutex plans_mutex_;
  size_t num_plans_ ABSL_GUARDED_BY(plans_mutex_) = 0;
  // By client; none is 0.
  absl::flat_hash_map<std::string, size_t> num_plans_of_
      ABSL_GUARDED_BY(plans_mutex_);
  std::stop_source stop_plans_;
  JobTable jobs_;
  JobWatchers watchers_;
  // Short work that must not block a caller's thread; one set of threads for
  // each root.
  RootThreads errands_;
  JobScheduler scheduler_;
};

}  // namespace dcp::server

#endif  // SERVER_JOBS_JOB_MANAGER_H_
