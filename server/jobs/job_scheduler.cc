// SPDX-License-Identifier: Apache-2.0
// Runs jobs: a job waits in the queue until a thread is free for it, then for
// memory, and then runs. The table's lock is never held while the disk, the
// memory budget or a watcher is used. In particular no Reservation may be
// destroyed with it held, because the budget then grants memory to others on
// the same thread.
#include "server/jobs/job_scheduler.h"

#include <algorithm>
#include <optional>
#include <stop_token>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "dcp/base/steady_time.h"
#include "dcp/io/pipeline.h"
#include "proto/error_detail.h"
#include "server/jobs/job.h"

namespace dcp::server {
namespace {

// How often watchers hear about a running job, and the rate is sampled.
constexpr absl::Duration kTickPeriod = absl::Seconds(1);

// How often ended jobs are checked for old ones when no job ends.
constexpr absl::Duration kPrunePeriod = absl::Minutes(10);

}  // namespace

JobScheduler::JobScheduler(JobTable& jobs, JobJournal& journal,
                           const JobRunner& runner, JobWatchers& watchers,
                           RootThreads& errands, MemoryBudget& budget,
                           Metrics& metrics, const ServerOptions& options,
                           uint64_t log_step_bytes)
    : jobs_(jobs),
      journal_(journal),
      runner_(runner),
      watchers_(watchers),
      errands_(errands),
      budget_(budget),
      metrics_(metrics),
      options_(options),
      log_step_bytes_(log_step_bytes),
      finisher_(jobs, journal, watchers, metrics, options) {}

JobScheduler::~JobScheduler() {
  Stop();
  threads_.clear();  // joins
}

absl::Status JobScheduler::Start() {
  DCP_ASSIGN_OR_RETURN(const std::vector<Job> jobs, journal_.Jobs());
  Hold(!journal_.CheckUsable().ok());
  DCP_RETURN_IF_ERROR(StartThreads());  // before a restart is counted
  for (const Job& job : jobs) DCP_RETURN_IF_ERROR(Recover(job));
  finisher_.Prune();
  Dispatch();
  return absl::OkStatus();
}

absl::Status JobScheduler::Recover(const Job& job) {
  auto entry = std::make_shared<JobEntry>();
  entry->job = job;
  const bool ended = HasEnded(job.state);
  const bool may_run =
      job.state == JobMetadata::PENDING || job.num_restarts < kMaxRestarts;
  if (!ended) {
    // A full disk does not keep the server from other work: the job waits until
    // there is space, and this restart does not count.
    const absl::Status counted = journal_.CountRestart(job.number);
    if (!counted.ok() && !absl::IsResourceExhausted(counted)) return counted;
    ++entry->job.num_restarts;
    entry->job.state = JobMetadata::PENDING;
    DCP_LOG(kInfo) << "event=job_recovered id=" << job.id
                   << " restarts=" << entry->job.num_restarts;
  }
  {
    absl::MutexLock lock(&jobs_.mutex());
    jobs_.Insert(entry);
    if (!ended && !job.cancel_requested && may_run) {
      queue_.Push(job.client, job.number);
    }
  }
  if (ended) return absl::OkStatus();
  if (job.cancel_requested) {
    Settle(entry);
  } else if (!may_run) {
    // The job is not run or cleaned up again, because that may be the reason
    // why the server ends.
    Finish(entry,
           WithReason(absl::ResourceExhaustedError(absl::StrCat(
                          "the server has ended ", entry->job.num_restarts,
                          " times before this job had, so the job is not tried "
                          "again; what it has written may be left next to its "
                          "destination")),
                      ErrorReason::JOB_RESTARTED_TOO_OFTEN,
                      {{"limit", absl::StrCat(kMaxRestarts)}}));
  }
  return absl::OkStatus();
}

absl::Status JobScheduler::StartThreads() {
  for (int64_t i = 0; i < options_.max_running_jobs; ++i) {
    DCP_ASSIGN_OR_RETURN(Thread thread, Thread::Start([this] { RunReady(); }));
    threads_.push_back(std::move(thread));
  }
  DCP_ASSIGN_OR_RETURN(Thread ticker, Thread::Start([this] { Tick(); }));
  threads_.push_back(std::move(ticker));
  gauges_.push_back(
      metrics_.AddGauge("tessera_jobs_running", "Running jobs.",
                        [this] { return static_cast<double>(num_running()); }));
  gauges_.push_back(
      metrics_.AddGauge("tessera_jobs_queued", "Queued jobs.",
                        [this] { return static_cast<double>(num_queued()); }));
  gauges_.push_back(metrics_.AddGauge(
      "tessera_oldest_queued_job_seconds",
      "How long the oldest queued job has waited; 0 without one.",
      [this] { return absl::ToDoubleSeconds(LongestWait()); }));
  return absl::OkStatus();
}

void JobScheduler::Add(const JobEntryPtr& entry) {
  absl::MutexLock lock(&jobs_.mutex());
  jobs_.Insert(entry);
  queue_.Push(entry->job.client, entry->job.number);
}

void JobScheduler::Dispatch() {
  std::vector<JobEntryPtr> next;
  {
    absl::MutexLock lock(&jobs_.mutex());
    while (!draining_ && num_busy_ < options_.max_running_jobs) {
      const std::optional<int64_t> number = queue_.Pop();
      if (!number.has_value()) break;
      const JobEntryPtr& entry = jobs_.At(*number);
      entry->stage = JobStage::kAdmitting;
      ++num_busy_;
      next.push_back(entry);
    }
  }
  for (const JobEntryPtr& entry : next) Admit(entry);
}

void JobScheduler::Admit(const JobEntryPtr& entry) {
  const absl::StatusOr<uint64_t> ticket = budget_.Request(
      MemoryUse::kJob, entry->job.request.memory_bytes,
      [this, entry](Reservation memory) { Granted(entry, std::move(memory)); });
  bool withdrawn = false;
  {
    absl::MutexLock lock(&jobs_.mutex());
    if (!ticket.ok()) {
      entry->stage = JobStage::kSettling;
      entry->refused = true;
      --num_busy_;
      drained_.SignalAll();
    } else if (entry->stage == JobStage::kAdmitting) {
      entry->ticket = *ticket;
      withdrawn = entry->job.cancel_requested || draining_;
    }
  }
  if (!ticket.ok()) {
    GiveUp(entry, ticket.status());
    Dispatch();
  } else if (withdrawn && Withdraw(entry)) {
    Settle(entry);
    Dispatch();
  }
}

void JobScheduler::Granted(const JobEntryPtr& entry, Reservation memory) {
  absl::MutexLock lock(&jobs_.mutex());
  if (draining_) {
    // The job continues after the next start. `memory` is returned after the
    // lock is released, to those who can still use it.
    entry->stage = JobStage::kSettling;
    --num_busy_;
    drained_.SignalAll();
    return;
  }
  entry->stage = JobStage::kReady;
  entry->memory = std::move(memory);
  ready_.push_back(entry);
  work_.Signal();
  drained_.SignalAll();
}

bool JobScheduler::Withdraw(const JobEntryPtr& entry) {
  Reservation memory;  // returned without the lock
  uint64_t ticket = 0;
  {
    absl::MutexLock lock(&jobs_.mutex());
    if (entry->stage == JobStage::kQueued) {
      queue_.Remove(entry->job.client, entry->job.number);
      entry->stage = JobStage::kSettling;
      return true;
    }
    const auto ready = std::find(ready_.begin(), ready_.end(), entry);
    if (ready != ready_.end()) {
      ready_.erase(ready);
      memory = std::move(entry->memory);
      entry->stage = JobStage::kSettling;
      --num_busy_;
      return true;
    }
    if (entry->stage != JobStage::kAdmitting || entry->ticket == 0) {
      return false;
    }
    ticket = entry->ticket;
  }
  if (!budget_.Cancel(ticket)) return false;
  absl::MutexLock lock(&jobs_.mutex());
  entry->stage = JobStage::kSettling;
  --num_busy_;
  drained_.SignalAll();
  return true;
}

void JobScheduler::Cancel(const JobEntryPtr& entry) {
  std::stop_source stop;
  {
    absl::MutexLock lock(&jobs_.mutex());
    if (entry->stage == JobStage::kEnded) return;
    entry->job.cancel_requested = true;
    stop = entry->stop;
  }
  stop.request_stop();
  if (Withdraw(entry)) {
    Settle(entry);
    Dispatch();
  }
}

void JobScheduler::Hold(bool held) {
  absl::MutexLock lock(&jobs_.mutex());
  held_ = held;
  work_.SignalAll();
}

void JobScheduler::StopRevoked() {
  std::vector<JobEntryPtr> running;
  {
    absl::MutexLock lock(&jobs_.mutex());
    for (const auto& [number, entry] : running_) running.push_back(entry);
  }
  for (const JobEntryPtr& entry : running) {
    const Job& job = entry->job;
    if (runner_.CheckRights(job.request, job.client).ok()) continue;
    entry->stop.request_stop();
  }
}

void JobScheduler::RunReady() {
  Thread::LowerPriority();  // streams come first: their clients wait
  for (JobEntryPtr entry;; entry = nullptr) {
    {
      absl::MutexLock lock(&jobs_.mutex());
      while (!exiting_ && (ready_.empty() || draining_ || held_)) {
        work_.Wait(&jobs_.mutex());
      }
      if (exiting_) return;
      entry = std::move(ready_.front());
      ready_.pop_front();
      entry->stage = JobStage::kRunning;
      running_[entry->job.number] = entry;
      if (running_.size() == 1) tick_.Signal();
    }
    Execute(entry);
    {
      absl::MutexLock lock(&jobs_.mutex());
      running_.erase(entry->job.number);
      --num_busy_;
      drained_.SignalAll();
    }
    Dispatch();
  }
}

void JobScheduler::Execute(const JobEntryPtr& entry) {
  absl::StatusOr<std::string> response = RunOnce(entry);
  if (KeepsFilesInVain(*entry)) response = RunOnce(entry);
  bool goes_on = false;
  {
    Reservation memory;  // returned without the lock, before the job ends
    absl::MutexLock lock(&jobs_.mutex());
    memory = std::move(entry->memory);
    goes_on = absl::IsCancelled(response.status()) && stopping_ &&
              !entry->job.cancel_requested;
    if (goes_on) {
      SetState(entry->job, JobMetadata::PENDING);
      entry->stage = JobStage::kQueued;
    }
  }
  if (!goes_on) Finish(entry, response);
}

// Whether the run kept files for the next start of the server, and the job was
// cancelled after that. Another run, which has to stop, removes them.
bool JobScheduler::KeepsFilesInVain(JobEntry& entry) {
  absl::MutexLock lock(&jobs_.mutex());
  if (!std::exchange(entry.keeps_files, false) || !entry.job.cancel_requested) {
    return false;
  }
  SetState(entry.job, JobMetadata::PENDING);
  return true;
}

std::shared_ptr<JobControls> JobScheduler::MakeControls(
    const JobEntryPtr& entry) {
  auto controls = std::make_shared<JobControls>();
  controls->stop = entry->stop.get_token();
  controls->log.step_bytes = log_step_bytes_;
  controls->log.append = [this,
                          number = entry->job.number](std::string record) {
    return journal_.AppendRecord(number, record);
  };
  // The entry owns the controls and outlives the run; a shared_ptr to it here
  // would make it own itself.
  JobEntry* const own = entry.get();
  controls->log.keeps = [this, own] {
    absl::MutexLock lock(&jobs_.mutex());
    own->keeps_files = stopping_ && !own->job.cancel_requested && !own->refused;
    return own->keeps_files;
  };
  controls->on_plan = [this, own](const JobSize& size) {
    {
      absl::MutexLock lock(&jobs_.mutex());
      own->size = size;
      own->progress.Begin(size.num_bytes, size.bytes_kept, SteadyNow());
      SetState(own->job, JobMetadata::RUNNING);
    }
    watchers_.Notify(own->job.number);
  };
  controls->on_finishing = [this, own] {
    {
      absl::MutexLock lock(&jobs_.mutex());
      SetState(own->job, JobMetadata::FINISHING);
    }
    watchers_.Notify(own->job.number);
  };
  return controls;
}

absl::StatusOr<std::string> JobScheduler::RunOnce(const JobEntryPtr& entry) {
  const int64_t number = entry->job.number;
  const std::shared_ptr<JobControls> controls = MakeControls(entry);
  const absl::Time now = absl::Now();
  const absl::Status started = journal_.Start(number, now);
  JobRequest request;
  {
    absl::MutexLock lock(&jobs_.mutex());
    SetState(entry->job, JobMetadata::PLANNING);
    entry->job.start_time = now;
    entry->runs_since = SteadyNow();
    entry->controls = controls;
    request = entry->job.request;
  }
  watchers_.Notify(number);
  DCP_LOG(kInfo) << "event=job_started id=" << entry->job.id
                 << CallField(request);
  DCP_RETURN_IF_ERROR(started);
  DCP_ASSIGN_OR_RETURN(request.bytes, journal_.RequestBytes(number));
  DCP_ASSIGN_OR_RETURN(controls->log.before, journal_.Records(number));
  return runner_.Run(request, entry->job.client, *controls);
}

void JobScheduler::Settle(const JobEntryPtr& entry) {
  bool cancelled = false;
  {
    absl::MutexLock lock(&jobs_.mutex());
    entry->stage = JobStage::kSettling;
    cancelled = entry->job.cancel_requested;
  }
  // If the server drains, the job continues after the next start.
  if (!cancelled) return;
  GiveUp(entry, absl::CancelledError("cancelled before it began"));
}

void JobScheduler::GiveUp(const JobEntryPtr& entry, const absl::Status& why) {
  if (entry->job.num_restarts == 0) return Finish(entry, why);
  // An earlier run may have left files, or may have completed.
  entry->stop.request_stop();
  const JobRequest& request = entry->job.request;
  const std::string& path =
      request.destination.empty() ? request.source : request.destination;
  const auto run = [this, entry, why] {
    if (exiting()) return;
    const absl::StatusOr<std::string> response = RunOnce(entry);
    Finish(entry, absl::IsCancelled(response.status()) ? why : response);
  };
  // Fails only when the server ends; the job then continues after the next
  // start.
  errands_.QueueFor(path)->Post(entry->job.client, run).IgnoreError();
}

void JobScheduler::Finish(const JobEntryPtr& entry,
                          const absl::StatusOr<std::string>& response) {
  if (finisher_.Finish(entry, response)) return;
  absl::MutexLock lock(&jobs_.mutex());
  tick_.Signal();
}

void JobScheduler::Tick() {
  absl::Duration pruned = SteadyNow();
  while (true) {
    std::vector<JobEntryPtr> running;
    {
      absl::MutexLock lock(&jobs_.mutex());
      if (exiting_) return;
      // A signal only ends the long wait early, because a job has begun.
      const bool passed = tick_.WaitUntil(
          &jobs_.mutex(),
          SteadyNow() + (running_.empty() && !finisher_.has_unkept()
                             ? kPrunePeriod
                             : kTickPeriod));
      if (exiting_) return;
      if (!passed) continue;
      for (const auto& [number, entry] : running_) {
        if (entry->controls == nullptr) continue;
        const TransferStats& stats = entry->controls->stats;
        entry->progress.Sample(stats.bytes_read + stats.bytes_written,
                               SteadyNow());
        running.push_back(entry);
      }
    }
    for (const JobEntryPtr& entry : running) {
      watchers_.Notify(entry->job.number);
    }
    finisher_.FinishUnkept();
    if (SteadyNow() - pruned >= kPrunePeriod) {
      finisher_.Prune();
      pruned = SteadyNow();
    }
  }
}

void JobScheduler::Drain(absl::Duration end) {
  std::vector<JobEntryPtr> waiting;
  {
    absl::MutexLock lock(&jobs_.mutex());
    draining_ = true;
    waiting = jobs_.Waiting();
  }
  for (const JobEntryPtr& entry : waiting) {
    if (Withdraw(entry)) Settle(entry);
  }
  watchers_.NotifyAll();
  std::vector<std::stop_source> stops;
  {
    absl::MutexLock lock(&jobs_.mutex());
    while (!running_.empty() && !drained_.WaitUntil(&jobs_.mutex(), end)) {
    }
    stopping_ = true;
    for (const auto& [number, entry] : running_) stops.push_back(entry->stop);
  }
  for (std::stop_source& stop : stops) stop.request_stop();
  absl::MutexLock lock(&jobs_.mutex());
  while (!running_.empty() || jobs_.IsAnyAdmitting()) {
    drained_.Wait(&jobs_.mutex());
  }
}

void JobScheduler::Stop() {
  Drain(absl::ZeroDuration());
  gauges_.clear();
  absl::MutexLock lock(&jobs_.mutex());
  exiting_ = true;
  work_.SignalAll();
  tick_.SignalAll();
}

bool JobScheduler::exiting() const {
  absl::MutexLock lock(&jobs_.mutex());
  return exiting_;
}

bool JobScheduler::draining() const {
  absl::MutexLock lock(&jobs_.mutex());
  return draining_;
}

uint64_t JobScheduler::num_running() const {
  absl::MutexLock lock(&jobs_.mutex());
  return running_.size();
}

absl::Duration JobScheduler::LongestWait() const {
  absl::MutexLock lock(&jobs_.mutex());
  const absl::Time oldest = jobs_.OldestWaiting();
  return std::max(absl::Now() - oldest, absl::ZeroDuration());
}

uint64_t JobScheduler::num_queued() const {
  absl::MutexLock lock(&jobs_.mutex());
  return queue_.size();
}

}  // namespace dcp::server
