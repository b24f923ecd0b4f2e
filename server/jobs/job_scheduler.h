// SPDX-License-Identifier: Apache-2.0
// JobScheduler: takes jobs from the queue to their end. The jobs of a client
// run in the order in which they were submitted, and clients take turns; no
// more jobs run than there are threads and memory for. Jobs that a killed
// server left unfinished run again after its next start. Thread-safe; only
// Drain, Stop and the destructor wait for jobs.
#ifndef SERVER_JOBS_JOB_SCHEDULER_H_
#define SERVER_JOBS_JOB_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "dcp/base/steady_time.h"
#include "dcp/base/thread.h"
#include "server/access/root_threads.h"
#include "server/jobs/job_entry.h"
#include "server/jobs/job_finisher.h"
#include "server/jobs/job_journal.h"
#include "server/jobs/job_runner.h"
#include "server/jobs/job_table.h"
#include "server/jobs/job_watchers.h"
#include "server/memory/memory_budget.h"
#include "server/options/server_options.h"
#include "server/process/fair_queue.h"
#include "server/process/metrics.h"

namespace dcp::server {

// How often a started job may be found unfinished: a job that crashes the
// server each time must not be repeated forever.
inline constexpr uint32_t kMaxRestarts = 20;

class JobScheduler {
 public:
  // All references outlive this. `errands` runs short work that must not block
  // a caller's thread; it is stopped between Stop and the destructor.
  JobScheduler(JobTable& jobs, JobJournal& journal, const JobRunner& runner,
               JobWatchers& watchers, RootThreads& errands,
               MemoryBudget& budget, Metrics& metrics,
               const ServerOptions& options, uint64_t log_step_bytes);
  ~JobScheduler();
  JobScheduler(const JobScheduler&) = delete;
  JobScheduler& operator=(const JobScheduler&) = delete;

  // Puts the jobs of the journal into the table, queues the unfinished ones
  // again, and starts the threads.
  absl::Status Start();

  // Puts a new job into the table and the queue.
  void Add(const JobEntryPtr& entry) ABSL_LOCKS_EXCLUDED(jobs_.mutex());
  // Gives work to free threads.
  void Dispatch() ABSL_LOCKS_EXCLUDED(jobs_.mutex());
  // Ends the job soon. The journal knows that the client has requested this.
  void Cancel(const JobEntryPtr& entry) ABSL_LOCKS_EXCLUDED(jobs_.mutex());

  // While `held`, no job begins; those that run go on.
  void Hold(bool held) ABSL_LOCKS_EXCLUDED(jobs_.mutex());
  // Stops running jobs that their clients have lost the right to do; they fail.
  // Looks at the disk.
  void StopRevoked() ABSL_LOCKS_EXCLUDED(jobs_.mutex());

  // Starts no more jobs, waits for the running ones, and stops them at
  // `end`, a time of SteadyNow: they continue after the next start. May be
  // called by several threads: the earliest end counts.
  void Drain(absl::Duration end) ABSL_LOCKS_EXCLUDED(jobs_.mutex());
  bool draining() const ABSL_LOCKS_EXCLUDED(jobs_.mutex());

  // Calls Drain with an end that has passed, and ends the threads.
  void Stop() ABSL_LOCKS_EXCLUDED(jobs_.mutex());
  bool exiting() const ABSL_LOCKS_EXCLUDED(jobs_.mutex());

  uint64_t num_running() const ABSL_LOCKS_EXCLUDED(jobs_.mutex());
  absl::Duration LongestWait() const ABSL_LOCKS_EXCLUDED(jobs_.mutex());
  uint64_t num_queued() const ABSL_LOCKS_EXCLUDED(jobs_.mutex());

 private:
  absl::Status Recover(const Job& job);
  absl::Status StartThreads();

  void Admit(const JobEntryPtr& entry) ABSL_LOCKS_EXCLUDED(jobs_.mutex());
  void Granted(const JobEntryPtr& entry, Reservation memory)
      ABSL_LOCKS_EXCLUDED(jobs_.mutex());
  // Takes the job out of the queue, or withdraws the request for memory.
  // Returns false if it has proceeded further.
  bool Withdraw(const JobEntryPtr& entry) ABSL_LOCKS_EXCLUDED(jobs_.mutex());

  // The bodies of the threads.
  void RunReady();
  void Tick();

  void Execute(const JobEntryPtr& entry);
  absl::StatusOr<std::string> RunOnce(const JobEntryPtr& entry);
  bool KeepsFilesInVain(JobEntry& entry) ABSL_LOCKS_EXCLUDED(jobs_.mutex());
  std::shared_ptr<JobControls> MakeControls(const JobEntryPtr& entry);
  // Ends a job that was withdrawn.
  void Settle(const JobEntryPtr& entry);
  // Ends a job that holds no memory: with `why`, or with the outcome of an
  // earlier run.
  void GiveUp(const JobEntryPtr& entry, const absl::Status& why);
  // Ends a job; if the journal cannot take it, Tick tries again.
  void Finish(const JobEntryPtr& entry,
              const absl::StatusOr<std::string>& response);

  JobTable& jobs_;
  JobJournal& journal_;
  const JobRunner& runner_;
  JobWatchers& watchers_;
  RootThreads& errands_;
  MemoryBudget& budget_;
  Metrics& metrics_;
  const ServerOptions& options_;
  const uint64_t log_step_bytes_;
  JobFinisher finisher_;

  absl::CondVar work_;     // for RunReady
  SteadyCondVar tick_;     // for Tick
  SteadyCondVar drained_;  // for Drain
  FairQueue<int64_t> queue_ ABSL_GUARDED_BY(jobs_.mutex());
  std::deque<JobEntryPtr> ready_ ABSL_GUARDED_BY(jobs_.mutex());
  std::map<int64_t, JobEntryPtr> running_ ABSL_GUARDED_BY(jobs_.mutex());
  // From admitting to running.
  int64_t num_busy_ ABSL_GUARDED_BY(jobs_.mutex()) = 0;
  bool held_ ABSL_GUARDED_BY(jobs_.mutex()) = false;
  bool draining_ ABSL_GUARDED_BY(jobs_.mutex()) = false;
  bool stopping_ ABSL_GUARDED_BY(jobs_.mutex()) = false;  // running jobs too
  bool exiting_ ABSL_GUARDED_BY(jobs_.mutex()) = false;   // for the threads
  std::vector<std::shared_ptr<void>> gauges_;
  std::vector<Thread> threads_;
};

}  // namespace dcp::server

#endif  // SERVER_JOBS_JOB_SCHEDULER_H_
