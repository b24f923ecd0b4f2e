// JobManager: decides which job runs when. Jobs of a client run in the order in
// which they came, clients take turns, no more run than there are threads and
// memory for. Every change that a client may rely on is in the journal first;
// what a killed server left unfinished runs again after its next start.
// Thread-safe; no method but Drain and the destructor waits for a job. A client
// sees its own jobs only, but for an admin: the others' are NotFound.
#ifndef SERVER_JOB_MANAGER_H_
#define SERVER_JOB_MANAGER_H_

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
#include "server/access.h"
#include "server/job.h"
#include "server/job_filter.h"
#include "server/job_journal.h"
#include "server/job_progress.h"
#include "server/job_queue.h"
#include "server/job_runner.h"
#include "server/memory_budget.h"
#include "server/metrics.h"
#include "server/page_token.h"
#include "server/root_threads.h"
#include "server/server_options.h"

namespace dcp::server {

// Plans that wait for the threads that make them: each may read a large index,
// and its caller waits for it.
inline constexpr size_t kMaxWaitingPlans = 64;
// Of one job: each is a stream that a client keeps open.
inline constexpr size_t kMaxWatchers = 100;
// How often a job may be found unfinished that had begun: one that ends the
// server each time must not do so for ever.
inline constexpr uint32_t kMaxRestarts = 20;
// Operations of one page, and what they may take of a message (gRPC's clients
// accept 4 MiB).
inline constexpr int kMaxJobsPerPage = 1000;
inline constexpr int kDefaultJobsPerPage = 100;
inline constexpr size_t kMaxPageBytes = size_t{2} << 20;
// Jobs that are compared with a filter before others may go on.
inline constexpr size_t kJobsPerLook = 100;

struct JobPage {
  std::vector<google::longrunning::Operation> operations;
  std::string next_page_token;  // empty on the last page
};

class JobManager {
 public:
  using Operation = google::longrunning::Operation;
  // Called without a lock held, by any thread; must not block.
  using Changed = std::function<void()>;
  using Planned = std::function<void(absl::StatusOr<Operation>)>;

  // Queues again what the journal has unfinished, and starts. All references
  // outlive the manager.
  static absl::StatusOr<std::unique_ptr<JobManager>> Start(
      JobJournal& journal, const JobRunner& runner, MemoryBudget& budget,
      Metrics& metrics, const ServerOptions& options,
      uint64_t log_step_bytes = kConvertLogStepBytes);
  // As Drain with no time at all.
  ~JobManager();
  JobManager(const JobManager&) = delete;
  JobManager& operator=(const JobManager&) = delete;

  // The same request_id with the same request gives the same job. AlreadyExists
  // with another; FailedPrecondition where another job writes to the same
  // place; ResourceExhausted beyond a limit, Unavailable while draining, both
  // with a time to try again.
  absl::StatusOr<Operation> Submit(const Client& client, JobRequest request);

  // What the job would do, as an operation that is done and has no name.
  // `planned` is called once, by another thread, unless this fails.
  absl::Status Plan(const Client& client, JobRequest request, Planned planned);

  absl::StatusOr<Operation> Get(const Client& client, absl::string_view name);
  // In order of creation. InvalidArgument for a token that is not of this
  // client, this filter and this manager.
  absl::StatusOr<JobPage> List(const Client& client, const JobFilter& filter,
                               int page_size, absl::string_view page_token);
  // The job ends CANCELLED, soon, unless it has come to its end before.
  absl::Status Cancel(const Client& client, absl::string_view name);
  // Forgets a job that has ended; FailedPrecondition for another.
  absl::Status Delete(const Client& client, absl::string_view name);

  // `changed` is called after every change, every second while the job runs,
  // and perhaps once more after Unwatch, until when it holds what it refers
  // to. ResourceExhausted beyond kMaxWatchers.
  absl::StatusOr<uint64_t> Watch(const Client& client, absl::string_view name,
                                 Changed changed);
  void Unwatch(uint64_t watcher);

  // Takes no more jobs, starts none, waits for those that run, and at
  // `deadline` stops them: they go on after the next start. May be called by
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
    kSettling,   // to be cancelled
    kEnded,
  };
  struct Entry {
    Job job;
    Place place = Place::kQueued;
    uint64_t ticket = 0;   // of the memory budget; 0: not known yet
    bool refused = false;  // by the memory budget
    Reservation memory;
    std::stop_source stop;
    // Of the run that goes on or was the last. Owners: this and that run.
    std::shared_ptr<JobControls> controls;
    JobSize size;
    JobProgress progress;
    std::map<uint64_t, Changed> watchers;
  };
  // Owners: entries_, and whoever works on the job.
  using EntryPtr = std::shared_ptr<Entry>;
  JobManager(JobJournal& journal, const JobRunner& runner, MemoryBudget& budget,
             Metrics& metrics, const ServerOptions& options,
             uint64_t log_step_bytes);

  bool exiting() const;
  absl::Status Recover();
  void StartThreads();

  // At most so many of the client's jobs that match, behind number `after`.
  std::vector<EntryPtr> Choose(const Client& client, const JobFilter& filter,
                               int64_t after, size_t most)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // The job that has this request_id already, or null.
  absl::StatusOr<EntryPtr> CheckSubmit(const Client& client,
                                       const JobRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckSame(const EntryPtr& entry, const JobRequest& request);
  void Insert(const EntryPtr& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(const EntryPtr& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<EntryPtr> Find(const Client& client,
                                absl::string_view name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Gives free threads something to do.
  void Dispatch() ABSL_LOCKS_EXCLUDED(mutex_);
  void Admit(const EntryPtr& entry) ABSL_LOCKS_EXCLUDED(mutex_);
  void Granted(const EntryPtr& entry, Reservation memory)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes it from the queue, or its wish for memory back. False where it has
  // gone further.
  bool Withdraw(const EntryPtr& entry) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the budget may still call Granted.
  bool IsAdmitting() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // What the threads do.
  void RunReady();
  void Tick();

  void Execute(const EntryPtr& entry);
  absl::StatusOr<std::string> RunOnce(const EntryPtr& entry);
  // Ends a job that was withdrawn.
  void Settle(const EntryPtr& entry);
  // Ends a job that has no memory with `why`, or as an earlier run did.
  void GiveUp(const EntryPtr& entry, const absl::Status& why);
  // Nobody hears of its end before the journal has it; where the journal cannot
  // take it, Tick tries again.
  void Finish(const EntryPtr& entry,
              const absl::StatusOr<std::string>& response);
  void FinishUnkept();
  void Prune();
  // The job to forget next: one that is too old, or the oldest of the client
  // that has the most; 0: none.
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

  // Held while a job is checked against the others and written to the journal,
  // which takes one at a time anyway: two calls with one request_id must not
  // both find it new. Before mutex_.
  absl::Mutex submit_mutex_;
  mutable absl::Mutex mutex_;
  absl::CondVar work_;     // for RunReady
  absl::CondVar tick_;     // for Tick
  absl::CondVar drained_;  // for Drain
  std::map<int64_t, EntryPtr> entries_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> by_id_ ABSL_GUARDED_BY(mutex_);
  // Client and request_id.
  std::map<std::pair<std::string, std::string>, int64_t> by_request_id_
      ABSL_GUARDED_BY(mutex_);
  // Of those that have not ended: to whom a destination belongs, and how many
  // each client has.
  std::map<std::string, int64_t> by_destination_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> num_live_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<absl::Time, int64_t>> ended_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> num_ended_ ABSL_GUARDED_BY(mutex_);
  // That have ended, which the journal could not take.
  std::vector<std::pair<EntryPtr, absl::StatusOr<std::string>>> unkept_
      ABSL_GUARDED_BY(mutex_);
  JobQueue queue_ ABSL_GUARDED_BY(mutex_);
  std::deque<EntryPtr> ready_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, EntryPtr> running_ ABSL_GUARDED_BY(mutex_);
  int64_t num_busy_ ABSL_GUARDED_BY(mutex_) = 0;  // admitting to running
  size_t num_plans_ ABSL_GUARDED_BY(mutex_) = 0;  // among the errands
  std::map<uint64_t, EntryPtr> watched_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_watcher_ ABSL_GUARDED_BY(mutex_) = 1;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;  // also what runs
  bool exiting_ ABSL_GUARDED_BY(mutex_) = false;   // the threads
  std::stop_source stop_plans_;
  std::vector<std::shared_ptr<void>> gauges_;
  // Short work that is not to be done in a caller's thread, of each root.
  RootThreads errands_;
  std::vector<std::thread> threads_;
};

}  // namespace dcp::server

#endif  // SERVER_JOB_MANAGER_H_
