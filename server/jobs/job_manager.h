// JobManager: decides when each job runs. The jobs of a client run in the order
// in which they were submitted, and clients take turns; no more jobs run than
// there are threads and memory for. Every change that a client may rely on is
// written to the journal first, and jobs that a killed server left unfinished
// run again after its next start. Thread-safe; only Drain and the destructor
// wait for jobs. A client, unless it is an admin, sees only its own jobs: other
// jobs are NotFound.
#ifndef SERVER_JOBS_JOB_MANAGER_H_
#define SERVER_JOBS_JOB_MANAGER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "google/longrunning/operations_proto.pb.h"
#include "server/access/access.h"
#include "server/access/page_token.h"
#include "server/access/root_threads.h"
#include "server/jobs/job.h"
#include "server/jobs/job_filter.h"
#include "server/jobs/job_journal.h"
#include "server/jobs/job_progress.h"
#include "server/jobs/job_queue.h"
#include "server/jobs/job_runner.h"
#include "server/memory/memory_budget.h"
#include "server/process/metrics.h"
#include "server/server_options.h"

namespace dcp::server {

// Plans that may wait for a thread: each may read a large index, and its caller
// waits for it.
inline constexpr size_t kMaxWaitingPlans = 64;
// For one job: each watcher is a stream that a client keeps open.
inline constexpr size_t kMaxWatchers = 100;
// How often a started job may be found unfinished: a job that crashes the
// server each time must not be repeated forever.
inline constexpr uint32_t kMaxRestarts = 20;
// Operations on one page, and the bytes they may take in a message (gRPC's
// clients accept 4 MiB).
inline constexpr int kMaxJobsPerPage = 1000;
inline constexpr int kDefaultJobsPerPage = 100;
inline constexpr size_t kMaxPageBytes = size_t{2} << 20;
// Jobs that are matched with a filter before the lock is released for others.
inline constexpr size_t kJobsPerLook = 100;

struct JobPage {
  std::vector<google::longrunning::Operation> operations;
  std::string next_page_token;  // empty on the last page
};

class JobManager {
 public:
  using Operation = google::longrunning::Operation;
  // Called by any thread without a lock held; must not block.
  using Changed = std::function<void()>;
  using Planned = std::function<void(absl::StatusOr<Operation>)>;

  // Queues the unfinished jobs of the journal again, and starts the threads.
  // All references outlive the manager.
  static absl::StatusOr<std::unique_ptr<JobManager>> Start(
      JobJournal& journal, const JobRunner& runner, MemoryBudget& budget,
      Metrics& metrics, const ServerOptions& options,
      uint64_t log_step_bytes = kConvertJournalStepBytes);
  // Calls Drain with a deadline that has passed.
  ~JobManager();
  JobManager(const JobManager&) = delete;
  JobManager& operator=(const JobManager&) = delete;

  // A second call with the same request_id and request returns the same job.
  // AlreadyExists for the same request_id with another request;
  // FailedPrecondition if another job writes to the same destination;
  // ResourceExhausted beyond a limit, Unavailable while draining, both with a
  // retry-after.
  absl::StatusOr<Operation> Submit(const Client& client, JobRequest request);

  // What the job would do, as a completed operation without a name. `planned`
  // is called once, by another thread, unless this fails.
  absl::Status Plan(const Client& client, JobRequest request, Planned planned);

  absl::StatusOr<Operation> Get(const Client& client, absl::string_view name);
  // In the order of creation. InvalidArgument for a page token that is not from
  // this client, this filter and this manager.
  absl::StatusOr<JobPage> List(const Client& client, const JobFilter& filter,
                               int page_size, absl::string_view page_token);
  // The job soon ends as CANCELLED, unless it completes before.
  absl::Status Cancel(const Client& client, absl::string_view name);
  // Deletes a job that has ended; FailedPrecondition if it has not.
  absl::Status Delete(const Client& client, absl::string_view name);

  // Calls `changed` after every change, every second while the job runs, and
  // perhaps once more after Unwatch, so `changed` must keep what it uses alive.
  // ResourceExhausted beyond kMaxWatchers.
  absl::StatusOr<uint64_t> Watch(const Client& client, absl::string_view name,
                                 Changed changed);
  void Unwatch(uint64_t watcher);

  // Accepts no more jobs, starts none, waits for the running ones, and stops
  // them at `deadline`: they continue after the next start. May be called by
  // several threads: the earliest deadline counts.
  void Drain(absl::Time deadline);
  bool draining() const;

  uint64_t num_running() const;
  uint64_t num_queued() const;

 private:
  // Where a job is.
  enum class Place : uint8_t {
    kQueued,     // in queue_, or nowhere once the server drains
    kAdmitting,  // waits for memory
    kReady,      // in ready_, with memory
    kRunning,    // on a thread
    kSettling,   // about to be cancelled
    kEnded,
  };
  struct Entry {
    Job job;
    Place place = Place::kQueued;
    uint64_t ticket = 0;   // of the memory budget; 0: not known yet
    bool refused = false;  // by the memory budget
    Reservation memory;
    std::stop_source stop;
    // Of the current or the last run. Owners: this and that run.
    std::shared_ptr<JobControls> controls;
    JobSize size;
    JobProgress progress;
    std::map<uint64_t, Changed> watchers;
  };
  // Owners: entries_, and each thread that works on the job.
  using EntryPtr = std::shared_ptr<Entry>;
  JobManager(JobJournal& journal, const JobRunner& runner, MemoryBudget& budget,
             Metrics& metrics, const ServerOptions& options,
             uint64_t log_step_bytes);

  bool exiting() const;
  absl::Status Recover();
  void StartThreads();

  // The client's matching jobs with numbers above `after`, up to a limit.
  std::vector<EntryPtr> Choose(const Client& client, const JobFilter& filter,
                               int64_t after, size_t most)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // The existing job with this request_id, or null.
  absl::StatusOr<EntryPtr> CheckSubmit(const Client& client,
                                       const JobRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckSame(const EntryPtr& entry, const JobRequest& request);
  void Insert(const EntryPtr& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(const EntryPtr& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<EntryPtr> Find(const Client& client,
                                absl::string_view name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Gives work to free threads.
  void Dispatch() ABSL_LOCKS_EXCLUDED(mutex_);
  void Admit(const EntryPtr& entry) ABSL_LOCKS_EXCLUDED(mutex_);
  void Granted(const EntryPtr& entry, Reservation memory)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes the job out of the queue, or withdraws its wish for memory. Returns
  // false if it has proceeded further.
  bool Withdraw(const EntryPtr& entry) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the budget may still call a Granted of this.
  bool IsAdmitting() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The body of the threads.
  void RunReady();
  void Tick();

  void Execute(const EntryPtr& entry);
  absl::StatusOr<std::string> RunOnce(const EntryPtr& entry);
  // Ends a job that was withdrawn.
  void Settle(const EntryPtr& entry);
  // Ends a job that holds no memory: with `why`, or with the outcome of an
  // earlier run.
  void GiveUp(const EntryPtr& entry, const absl::Status& why);
  // Ends a job. Nobody is told before the journal has recorded it; if the
  // journal cannot, Tick tries again.
  void Finish(const EntryPtr& entry,
              const absl::StatusOr<std::string>& response);
  void FinishUnkept();
  void Prune();
  // The job to delete next: one that is too old, or the oldest of the client
  // that has the most; 0 if there is none.
  int64_t NextToForget() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void SetState(Entry& entry, JobState state)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Notify(const EntryPtr& entry) ABSL_LOCKS_EXCLUDED(mutex_);
  Operation Describe(const Entry& entry) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Operation> Snapshot(const EntryPtr& entry)
      ABSL_LOCKS_EXCLUDED(mutex_);

  JobJournal& journal_;
  const JobRunner& runner_;
  MemoryBudget& budget_;
  Metrics& metrics_;
  const ServerOptions& options_;
  const uint64_t log_step_bytes_;
  const PageTokens page_tokens_;

  // Held while a job is checked against the others and written to the journal
  // (which takes one at a time anyway), so that of two calls with one
  // request_id only one finds it new. Acquired before mutex_.
  absl::Mutex submit_mutex_;
  mutable absl::Mutex mutex_;
  absl::CondVar work_;     // for RunReady
  absl::CondVar tick_;     // for Tick
  absl::CondVar drained_;  // for Drain
  std::map<int64_t, EntryPtr> entries_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> by_id_ ABSL_GUARDED_BY(mutex_);
  // Key: client and request_id.
  std::map<std::pair<std::string, std::string>, int64_t> by_request_id_
      ABSL_GUARDED_BY(mutex_);
  // Of jobs that have not ended: the job that owns a destination, and how many
  // jobs each client has.
  std::map<std::string, int64_t> by_destination_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> num_live_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<absl::Time, int64_t>> ended_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> num_ended_ ABSL_GUARDED_BY(mutex_);
  // Jobs that have ended but could not be written to the journal.
  std::vector<std::pair<EntryPtr, absl::StatusOr<std::string>>> unkept_
      ABSL_GUARDED_BY(mutex_);
  JobQueue queue_ ABSL_GUARDED_BY(mutex_);
  std::deque<EntryPtr> ready_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, EntryPtr> running_ ABSL_GUARDED_BY(mutex_);
  int64_t num_busy_ ABSL_GUARDED_BY(mutex_) = 0;  // from admitting to running
  size_t num_plans_ ABSL_GUARDED_BY(mutex_) = 0;  // those among the errands
  std::map<uint64_t, EntryPtr> watched_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_watcher_ ABSL_GUARDED_BY(mutex_) = 1;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;  // running jobs too
  bool exiting_ ABSL_GUARDED_BY(mutex_) = false;   // for the threads
  std::stop_source stop_plans_;
  std::vector<std::shared_ptr<void>> gauges_;
  // Short work that must not block a caller's thread; one set of threads for
  // each root.
  RootThreads errands_;
  std::vector<std::thread> threads_;
};

}  // namespace dcp::server

#endif  // SERVER_JOBS_JOB_MANAGER_H_
