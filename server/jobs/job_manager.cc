// A job waits in the queue until a thread is free for it, then for memory, and
// then runs. mutex_ is never held while the disk, the memory budget or a
// watcher is used. In particular no Reservation may be destroyed with it held,
// because the budget then grants memory to others on the same thread.
#include "server/jobs/job_manager.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "dcp/base/check.h"
#include "dcp/base/error_place.h"
#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/write/save_id.h"
#include "google/protobuf/util/time_util.h"
#include "google/rpc/status.pb.h"
#include "proto/error_detail.h"
#include "proto/rpc_status.h"
#include "proto/utf8.h"
#include "server/jobs/uuid.h"
#include "server/process/log_text.h"
#include "server/process/refusal.h"
#include "server/process/token_bucket.h"

namespace dcp::server {
namespace {

// No limit is needed: plans have their own, and each job occurs at most once.
constexpr size_t kMaxErrands = SIZE_MAX;

constexpr absl::string_view kNamePrefix = "operations/";

// How often watchers are told of a running job and its rate is sampled.
constexpr absl::Duration kTickPeriod = absl::Seconds(1);

// How often ended jobs are checked for old ones when no job ends.
constexpr absl::Duration kPrunePeriod = absl::Minutes(10);

bool MaySee(const Client& client, const Job& job) {
  return client.is_admin() || job.client == client.name();
}

absl::Status NoSuchJob(absl::string_view name) {
  return WithReason(
      absl::NotFoundError(absl::StrCat("there is no operation '", name, "'")),
      ErrorReason::JOB_NOT_FOUND, {{"name", std::string(name)}});
}

void SetTimestamp(absl::Time time, google::protobuf::Timestamp& proto) {
  proto = google::protobuf::util::TimeUtil::NanosecondsToTimestamp(
      absl::ToUnixNanos(time));
}

// The error names the other job only to the client that submitted it.
absl::Status DestinationInUse(const Client& client, const Job& writer) {
  const std::string& path = writer.request.destination;
  absl::Status status =
      WithPlace(absl::FailedPreconditionError(absl::StrCat(
                    "another job, not ended yet, writes to ", path)),
                {.path = path});
  if (writer.client != client.name()) {
    return WithReason(std::move(status), ErrorReason::DESTINATION_IN_USE);
  }
  return WithReason(std::move(status), ErrorReason::DESTINATION_IN_USE,
                    {{"name", absl::StrCat(kNamePrefix, writer.id)}});
}

JobState StateAfter(const absl::Status& status, bool cancel_requested) {
  if (status.ok()) return JobMetadata::SUCCEEDED;
  return cancel_requested && absl::IsCancelled(status) ? JobMetadata::CANCELLED
                                                       : JobMetadata::FAILED;
}

JobOutcome OutcomeOf(const absl::StatusOr<std::string>& response) {
  if (response.ok()) return {.response = *response, .error = ""};
  return {.response = "",
          .error = ToStatusProto(response.status()).SerializeAsString()};
}

absl::Status AddOutcome(const JobOutcome& outcome,
                        google::longrunning::Operation& operation) {
  const bool parsed =
      outcome.error.empty()
          ? operation.mutable_response()->ParseFromString(outcome.response)
          : operation.mutable_error()->ParseFromString(outcome.error);
  if (parsed) return absl::OkStatus();
  return WithReason(
      absl::DataLossError(absl::StrCat("the journal's result of ",
                                       operation.name(), " is malformed")),
      ErrorReason::JOURNAL_FAILED);
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobManager>> JobManager::Start(
    JobJournal& journal, const JobRunner& runner, MemoryBudget& budget,
    Metrics& metrics, const ServerOptions& options, uint64_t log_step_bytes) {
  std::unique_ptr<JobManager> manager(new JobManager(
      journal, runner, budget, metrics, options, log_step_bytes));
  DCP_RETURN_IF_ERROR(manager->Recover());
  manager->StartThreads();
  manager->Prune();
  manager->Dispatch();
  return manager;
}

JobManager::JobManager(JobJournal& journal, const JobRunner& runner,
                       MemoryBudget& budget, Metrics& metrics,
                       const ServerOptions& options, uint64_t log_step_bytes)
    : journal_(journal),
      runner_(runner),
      budget_(budget),
      metrics_(metrics),
      options_(options),
      log_step_bytes_(log_step_bytes),
      errands_(runner.access(), /*threads_per_root=*/1, kMaxErrands) {}

JobManager::~JobManager() {
  Drain(absl::InfinitePast());
  gauges_.clear();
  stop_plans_.request_stop();
  {
    absl::MutexLock lock(&mutex_);
    exiting_ = true;
    work_.SignalAll();
    tick_.SignalAll();
  }
  errands_.Stop();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status JobManager::Recover() {
  DCP_ASSIGN_OR_RETURN(const std::vector<Job> jobs, journal_.Jobs());
  for (const Job& job : jobs) {
    auto entry = std::make_shared<Entry>();
    entry->job = job;
    const bool ended = HasEnded(job.state);
    const bool may_run =
        job.state == JobMetadata::PENDING || job.num_restarts < kMaxRestarts;
    if (!ended) {
      DCP_RETURN_IF_ERROR(journal_.CountRestart(job.number));
      ++entry->job.num_restarts;
      entry->job.state = JobMetadata::PENDING;
      DCP_LOG(kInfo) << "event=job_recovered id=" << job.id
                     << " restarts=" << entry->job.num_restarts;
    }
    {
      absl::MutexLock lock(&mutex_);
      Insert(entry);
      if (!ended && !job.cancel_requested && may_run) {
        queue_.Push(job.client, job.number);
      }
    }
    if (ended) continue;
    if (job.cancel_requested) {
      Settle(entry);
    } else if (!may_run) {
      // The job is not run or cleaned up again, because that may be what ends
      // the server.
      Finish(entry,
             WithReason(
                 absl::ResourceExhaustedError(absl::StrCat(
                     "the server has ended ", entry->job.num_restarts,
                     " times before this job had, and does not try it again; "
                     "what it has written may be left beside its "
                     "destination")),
                 ErrorReason::JOB_RESTARTED_TOO_OFTEN,
                 {{"limit", absl::StrCat(kMaxRestarts)}}));
    }
  }
  return absl::OkStatus();
}

void JobManager::StartThreads() {
  for (int64_t i = 0; i < options_.max_running_jobs; ++i) {
    threads_.emplace_back([this] { RunReady(); });
  }
  threads_.emplace_back([this] { Tick(); });
  gauges_.push_back(
      metrics_.AddGauge("tessera_jobs_running", "Jobs that run.",
                        [this] { return static_cast<double>(num_running()); }));
  gauges_.push_back(
      metrics_.AddGauge("tessera_jobs_queued", "Jobs that wait for their turn.",
                        [this] { return static_cast<double>(num_queued()); }));
}

// --- Calls of clients.

absl::StatusOr<JobManager::EntryPtr> JobManager::CheckSubmit(
    const Client& client, const JobRequest& request) {
  if (!request.request_id.empty()) {
    const auto known = by_request_id_.find({client.name(), request.request_id});
    if (known != by_request_id_.end()) return entries_.at(known->second);
  }
  if (draining_) return ServerDraining();
  if (queue_.size() >= static_cast<uint64_t>(options_.max_queued_jobs)) {
    return LimitReached(
        {.name = "max-queued-jobs",
         .value = static_cast<uint64_t>(options_.max_queued_jobs)},
        absl::StrCat(queue_.size(), " jobs are queued, which is the most"));
  }
  const auto live = num_live_.find(client.name());
  if (live != num_live_.end() && live->second >= options_.max_jobs_per_client) {
    return LimitReached(
        {.name = "max-jobs-per-client",
         .value = static_cast<uint64_t>(options_.max_jobs_per_client)},
        absl::StrCat(client.name(), " has ", live->second,
                     " jobs queued or running, which is the most for one "
                     "client"));
  }
  if (!request.destination.empty()) {
    const auto writer = by_destination_.find(request.destination);
    if (writer != by_destination_.end()) {
      return DestinationInUse(client, entries_.at(writer->second)->job);
    }
  }
  return EntryPtr();
}

absl::Status JobManager::CheckSame(const EntryPtr& entry,
                                   const JobRequest& request) {
  int64_t number;
  JobKind kind;
  {
    absl::MutexLock lock(&mutex_);
    number = entry->job.number;
    kind = entry->job.request.kind;
  }
  DCP_ASSIGN_OR_RETURN(const std::string bytes, journal_.RequestBytes(number));
  if (kind == request.kind && bytes == request.bytes) return absl::OkStatus();
  return WithReason(absl::AlreadyExistsError(
                        absl::StrCat("options.request_id ", request.request_id,
                                     " was used for another request")),
                    ErrorReason::REQUEST_ID_REUSED,
                    {{"request_id", request.request_id}});
}

absl::StatusOr<JobManager::Operation> JobManager::Submit(const Client& client,
                                                         JobRequest request) {
  EntryPtr entry;
  {
    absl::MutexLock submit_lock(&submit_mutex_);
    EntryPtr known;
    {
      absl::MutexLock lock(&mutex_);
      DCP_ASSIGN_OR_RETURN(known, CheckSubmit(client, request));
    }
    if (known != nullptr) {
      DCP_RETURN_IF_ERROR(CheckSame(known, request));
      return Snapshot(known);
    }
    entry = std::make_shared<Entry>();
    entry->job.id = NewSaveId();
    entry->job.client = client.name();
    entry->job.create_time = absl::Now();
    entry->job.request = std::move(request);
    DCP_RETURN_IF_ERROR(journal_.Add(entry->job));
    entry->job.request.bytes.clear();
    absl::MutexLock lock(&mutex_);
    Insert(entry);
    queue_.Push(entry->job.client, entry->job.number);
  }
  DCP_LOG(kInfo) << "event=job_submitted id=" << entry->job.id
                 << " client=" << client.name()
                 << " kind=" << KindName(entry->job.request.kind);
  absl::StatusOr<Operation> operation = Snapshot(entry);
  Dispatch();
  return operation;
}

absl::Status JobManager::Plan(const Client& client, JobRequest request,
                              Planned planned) {
  {
    absl::MutexLock lock(&mutex_);
    if (draining_) return ServerDraining();
    if (num_plans_ >= kMaxWaitingPlans) {
      return LimitReached(
          {.name = "plans", .value = kMaxWaitingPlans},
          absl::StrCat(num_plans_,
                       " requests wait for their plan, which is the most"));
    }
    ++num_plans_;
  }
  TaskQueue& threads = *errands_.QueueOf(request.source);
  return threads.Post([this, &client, request = std::move(request),
                       planned = std::move(planned)] {
    absl::StatusOr<std::string> plan = ServerDraining();
    if (!exiting()) {
      plan = runner_.Plan(request, client, stop_plans_.get_token());
    }
    {
      absl::MutexLock plans_lock(&mutex_);
      --num_plans_;
    }
    if (!plan.ok()) return planned(plan.status());
    Operation operation;
    operation.set_done(true);
    const absl::Status added = AddOutcome(OutcomeOf(plan), operation);
    DCP_CHECK(added.ok(), added.message());
    planned(std::move(operation));
  });
}

absl::StatusOr<JobManager::EntryPtr> JobManager::Find(
    const Client& client, absl::string_view name) const {
  absl::string_view id = name;
  if (!absl::ConsumePrefix(&id, kNamePrefix) || !IsUuid(id)) {
    return InvalidField("name",
                        absl::StrCat(" is '", ToUtf8(name.substr(0, 100)),
                                     "': it must be 'operations/' and a UUID"));
  }
  const auto found = by_id_.find(std::string(id));
  if (found == by_id_.end()) return NoSuchJob(name);
  const EntryPtr& entry = entries_.at(found->second);
  if (!MaySee(client, entry->job)) return NoSuchJob(name);
  return entry;
}

absl::StatusOr<JobManager::Operation> JobManager::Get(const Client& client,
                                                      absl::string_view name) {
  EntryPtr entry;
  {
    absl::MutexLock lock(&mutex_);
    DCP_ASSIGN_OR_RETURN(entry, Find(client, name));
  }
  return Snapshot(entry);
}

std::vector<JobManager::EntryPtr> JobManager::Choose(const Client& client,
                                                     const JobFilter& filter,
                                                     int64_t after,
                                                     size_t most) {
  std::vector<EntryPtr> found;
  while (true) {
    absl::MutexLock lock(&mutex_);
    auto it = entries_.upper_bound(after);
    for (size_t i = 0; i < kJobsPerLook && it != entries_.end(); ++i, ++it) {
      after = it->first;
      const Job& job = it->second->job;
      if (!MaySee(client, job) || !filter.Matches(job)) continue;
      found.push_back(it->second);
      if (found.size() == most) return found;
    }
    if (it == entries_.end()) return found;
  }
}

absl::StatusOr<JobPage> JobManager::List(const Client& client,
                                         const JobFilter& filter, int page_size,
                                         absl::string_view page_token) {
  // A zero byte is a unique separator, because names of clients do not contain
  // one.
  const std::string query = absl::StrCat(
      "jobs of ", client.name(), absl::string_view("\0", 1), filter.text());
  int64_t after = 0;
  if (!page_token.empty()) {
    DCP_ASSIGN_OR_RETURN(const uint64_t last,
                         page_tokens_.Read(query, page_token));
    after = static_cast<int64_t>(last);
  }
  if (page_size < 0) {
    return InvalidField(
        "page_size", absl::StrCat(" is ", page_size, ": must not be negative"));
  }
  if (page_size == 0) page_size = kDefaultJobsPerPage;
  page_size = std::min(page_size, kMaxJobsPerPage);
  // Asks for one job more than the page holds, to know whether there is another
  // page.
  const std::vector<EntryPtr> found =
      Choose(client, filter, after, static_cast<size_t>(page_size) + 1);
  JobPage page;
  size_t num_bytes = 0;
  for (const EntryPtr& entry : found) {
    if (page.operations.size() == static_cast<size_t>(page_size) ||
        num_bytes > kMaxPageBytes) {
      page.next_page_token =
          page_tokens_.Make(query, static_cast<uint64_t>(after));
      break;
    }
    absl::StatusOr<Operation> operation = Snapshot(entry);
    after = entry->job.number;
    if (absl::IsNotFound(operation.status())) continue;  // deleted since Choose
    DCP_RETURN_IF_ERROR(operation.status());
    num_bytes += operation->ByteSizeLong();
    page.operations.push_back(*std::move(operation));
  }
  return page;
}

absl::Status JobManager::Cancel(const Client& client, absl::string_view name) {
  EntryPtr entry;
  std::stop_source stop;
  {
    absl::MutexLock lock(&mutex_);
    DCP_ASSIGN_OR_RETURN(entry, Find(client, name));
    if (entry->place == Place::kEnded || entry->job.cancel_requested) {
      return absl::OkStatus();
    }
  }
  // From here on, a server that is killed cancels the job after its next start.
  DCP_RETURN_IF_ERROR(journal_.RequestCancel(entry->job.number));
  {
    absl::MutexLock lock(&mutex_);
    if (entry->place == Place::kEnded) return absl::OkStatus();
    entry->job.cancel_requested = true;
    stop = entry->stop;
  }
  DCP_LOG(kInfo) << "event=job_cancel_requested id=" << entry->job.id
                 << " client=" << LogText(client.name());
  stop.request_stop();
  if (Withdraw(entry)) {
    Settle(entry);
    Dispatch();
  }
  return absl::OkStatus();
}

absl::Status JobManager::Delete(const Client& client, absl::string_view name) {
  EntryPtr entry;
  {
    absl::MutexLock lock(&mutex_);
    DCP_ASSIGN_OR_RETURN(entry, Find(client, name));
    if (entry->place != Place::kEnded) {
      return WithReason(
          absl::FailedPreconditionError(absl::StrCat(
              name, " has not ended; cancel it, and delete it then")),
          ErrorReason::JOB_NOT_ENDED, {{"name", std::string(name)}});
    }
  }
  DCP_RETURN_IF_ERROR(journal_.Remove(entry->job.number));
  absl::MutexLock lock(&mutex_);
  Forget(entry);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> JobManager::Watch(const Client& client,
                                           absl::string_view name,
                                           Changed changed) {
  absl::MutexLock lock(&mutex_);
  DCP_ASSIGN_OR_RETURN(const EntryPtr entry, Find(client, name));
  if (entry->watchers.size() >= kMaxWatchers) {
    return LimitReached({.name = "watchers", .value = kMaxWatchers},
                        absl::StrCat(name, " is watched by ", kMaxWatchers,
                                     ", which is the most"));
  }
  const uint64_t watcher = next_watcher_++;
  entry->watchers[watcher] = std::move(changed);
  watched_[watcher] = entry;
  return watcher;
}

void JobManager::Unwatch(uint64_t watcher) {
  Changed changed;  // destroyed without the lock
  absl::MutexLock lock(&mutex_);
  const auto found = watched_.find(watcher);
  if (found == watched_.end()) return;
  const auto own = found->second->watchers.find(watcher);
  if (own != found->second->watchers.end()) {
    changed = std::move(own->second);
    found->second->watchers.erase(own);
  }
  watched_.erase(found);
}

// --- The table of jobs.

void JobManager::Insert(const EntryPtr& entry) {
  const Job& job = entry->job;
  entries_[job.number] = entry;
  by_id_[job.id] = job.number;
  if (!job.request.request_id.empty()) {
    by_request_id_[{job.client, job.request.request_id}] = job.number;
  }
  if (HasEnded(job.state)) {
    entry->place = Place::kEnded;
    ended_.emplace(job.end_time, job.number);
    ++num_ended_[job.client];
    return;
  }
  ++num_live_[job.client];
  if (!job.request.destination.empty()) {
    by_destination_[job.request.destination] = job.number;
  }
}

void JobManager::Forget(const EntryPtr& entry) {
  const Job& job = entry->job;
  ended_.erase({job.end_time, job.number});
  if (--num_ended_[job.client] == 0) num_ended_.erase(job.client);
  by_id_.erase(job.id);
  const auto same = by_request_id_.find({job.client, job.request.request_id});
  if (same != by_request_id_.end() && same->second == job.number) {
    by_request_id_.erase(same);
  }
  entries_.erase(job.number);
}

void JobManager::SetState(Entry& entry, JobState state) {
  DCP_CHECK(MayBecome(entry.job.state, state), entry.job.id, " from ",
            StateName(entry.job.state), " to ", StateName(state));
  entry.job.state = state;
}

int64_t JobManager::NextToForget() const {
  if (ended_.empty()) return 0;
  const auto oldest = ended_.begin();
  if (oldest->first < absl::Now() - options_.keep_jobs) return oldest->second;
  if (ended_.size() <= static_cast<size_t>(options_.max_ended_jobs)) return 0;
  const auto most = std::max_element(
      num_ended_.begin(), num_ended_.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  for (const auto& [time, number] : ended_) {
    if (entries_.at(number)->job.client == most->first) return number;
  }
  return 0;
}

void JobManager::Prune() {
  std::vector<int64_t> numbers;
  {
    absl::MutexLock lock(&mutex_);
    while (const int64_t number = NextToForget()) {
      const EntryPtr entry = entries_.at(number);
      Forget(entry);
      numbers.push_back(number);
    }
  }
  for (const int64_t number : numbers) {
    const absl::Status removed = journal_.Remove(number);
    if (!removed.ok()) {
      DCP_LOG(kError) << "event=journal_failed error=" << removed.message();
    }
  }
}

// --- Scheduling.

void JobManager::Dispatch() {
  std::vector<EntryPtr> next;
  {
    absl::MutexLock lock(&mutex_);
    while (!draining_ && num_busy_ < options_.max_running_jobs) {
      const std::optional<int64_t> number = queue_.Pop();
      if (!number.has_value()) break;
      const EntryPtr& entry = entries_.at(*number);
      entry->place = Place::kAdmitting;
      ++num_busy_;
      next.push_back(entry);
    }
  }
  for (const EntryPtr& entry : next) Admit(entry);
}

void JobManager::Admit(const EntryPtr& entry) {
  const absl::StatusOr<uint64_t> ticket = budget_.Request(
      MemoryUse::kJob, entry->job.request.memory_bytes,
      [this, entry](Reservation memory) { Granted(entry, std::move(memory)); });
  bool withdrawn = false;
  {
    absl::MutexLock lock(&mutex_);
    if (!ticket.ok()) {
      entry->place = Place::kSettling;
      entry->refused = true;
      --num_busy_;
      drained_.SignalAll();
    } else if (entry->place == Place::kAdmitting) {
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

void JobManager::Granted(const EntryPtr& entry, Reservation memory) {
  absl::MutexLock lock(&mutex_);
  if (draining_) {
    // The job continues after the next start. `memory` is returned after the
    // lock is released, to those who can still use it.
    entry->place = Place::kSettling;
    --num_busy_;
    drained_.SignalAll();
    return;
  }
  entry->place = Place::kReady;
  entry->memory = std::move(memory);
  ready_.push_back(entry);
  work_.Signal();
  drained_.SignalAll();
}

bool JobManager::Withdraw(const EntryPtr& entry) {
  Reservation memory;  // returned without the lock
  uint64_t ticket = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (entry->place == Place::kQueued) {
      queue_.Remove(entry->job.client, entry->job.number);
      entry->place = Place::kSettling;
      return true;
    }
    const auto ready = std::find(ready_.begin(), ready_.end(), entry);
    if (ready != ready_.end()) {
      ready_.erase(ready);
      memory = std::move(entry->memory);
      entry->place = Place::kSettling;
      --num_busy_;
      return true;
    }
    if (entry->place != Place::kAdmitting || entry->ticket == 0) return false;
    ticket = entry->ticket;
  }
  if (!budget_.Cancel(ticket)) return false;
  absl::MutexLock lock(&mutex_);
  entry->place = Place::kSettling;
  --num_busy_;
  drained_.SignalAll();
  return true;
}

// --- Running.

void JobManager::RunReady() {
  while (true) {
    EntryPtr entry;
    {
      absl::MutexLock lock(&mutex_);
      while (!exiting_ && (ready_.empty() || draining_)) work_.Wait(&mutex_);
      if (exiting_) return;
      entry = std::move(ready_.front());
      ready_.pop_front();
      entry->place = Place::kRunning;
      running_[entry->job.number] = entry;
      if (running_.size() == 1) tick_.Signal();
    }
    Execute(entry);
    {
      absl::MutexLock lock(&mutex_);
      running_.erase(entry->job.number);
      --num_busy_;
      drained_.SignalAll();
    }
    Dispatch();
  }
}

void JobManager::Execute(const EntryPtr& entry) {
  const absl::StatusOr<std::string> response = RunOnce(entry);
  bool goes_on = false;
  {
    Reservation memory;  // returned without the lock, before the job ends
    absl::MutexLock lock(&mutex_);
    memory = std::move(entry->memory);
    goes_on = absl::IsCancelled(response.status()) && stopping_ &&
              !entry->job.cancel_requested;
    if (goes_on) {
      SetState(*entry, JobMetadata::PENDING);
      entry->place = Place::kQueued;
    }
  }
  if (!goes_on) Finish(entry, response);
}

absl::StatusOr<std::string> JobManager::RunOnce(const EntryPtr& entry) {
  const int64_t number = entry->job.number;
  auto controls = std::make_shared<JobControls>();
  controls->stop = entry->stop.get_token();
  controls->log.step_bytes = log_step_bytes_;
  controls->log.append = [this, number](std::string record) {
    return journal_.AppendRecord(number, record);
  };
  Entry& job = *entry;  // a shared_ptr would make the entry own itself; it
                        // outlives the run
  controls->log.keeps = [this, &job] {
    absl::MutexLock lock(&mutex_);
    return stopping_ && !job.job.cancel_requested && !job.refused;
  };
  controls->on_plan =
      [this, entry_of_run = std::weak_ptr<Entry>(entry)](const JobSize& size) {
        const EntryPtr planned = entry_of_run.lock();
        {
          absl::MutexLock lock(&mutex_);
          planned->size = size;
          planned->progress.Begin(size.num_bytes, size.bytes_kept, absl::Now());
          SetState(*planned, JobMetadata::RUNNING);
        }
        Notify(planned);
      };
  controls->on_finishing = [this, entry_of_run = std::weak_ptr<Entry>(entry)] {
    const EntryPtr finishing = entry_of_run.lock();
    {
      absl::MutexLock lock(&mutex_);
      SetState(*finishing, JobMetadata::FINISHING);
    }
    Notify(finishing);
  };
  const absl::Time now = absl::Now();
  const absl::Status started = journal_.Start(number, now);
  JobRequest request;
  {
    absl::MutexLock lock(&mutex_);
    SetState(*entry, JobMetadata::PLANNING);
    entry->job.start_time = now;
    entry->controls = controls;
    request = entry->job.request;
  }
  Notify(entry);
  DCP_LOG(kInfo) << "event=job_started id=" << entry->job.id;
  DCP_RETURN_IF_ERROR(started);
  DCP_ASSIGN_OR_RETURN(request.bytes, journal_.RequestBytes(number));
  DCP_ASSIGN_OR_RETURN(controls->log.before, journal_.Records(number));
  return runner_.Run(request, entry->job.client, *controls);
}

void JobManager::Settle(const EntryPtr& entry) {
  bool cancelled = false;
  {
    absl::MutexLock lock(&mutex_);
    entry->place = Place::kSettling;
    cancelled = entry->job.cancel_requested;
  }
  // If the server drains, the job continues after the next start.
  if (!cancelled) return;
  GiveUp(entry, absl::CancelledError("cancelled before it began"));
}

void JobManager::GiveUp(const EntryPtr& entry, const absl::Status& why) {
  if (entry->job.num_restarts == 0) return Finish(entry, why);
  // An earlier run may have left files, or may have completed.
  entry->stop.request_stop();
  const JobRequest& request = entry->job.request;
  // Post fails only when the server ends; the job then continues after the next
  // start.
  errands_
      .QueueOf(request.destination.empty() ? request.source
                                           : request.destination)
      ->Post([this, entry, why] {
        if (exiting()) return;
        const absl::StatusOr<std::string> response = RunOnce(entry);
        Finish(entry, absl::IsCancelled(response.status()) ? why : response);
      })
      .IgnoreError();
}

void JobManager::Finish(const EntryPtr& entry,
                        const absl::StatusOr<std::string>& response) {
  const absl::Time now = absl::Now();
  const JobOutcome outcome = OutcomeOf(response);
  bool cancel_requested = false;
  {
    absl::MutexLock lock(&mutex_);
    cancel_requested = entry->job.cancel_requested;
  }
  const JobState state = StateAfter(response.status(), cancel_requested);
  // Written to the journal first, so that a job that a client has seen ended
  // stays ended.
  const absl::Status kept =
      journal_.End(entry->job.number, state, now, outcome);
  if (!kept.ok()) {
    DCP_LOG(kError) << "event=journal_failed id=" << entry->job.id
                    << " error=" << LogText(kept.message());
    absl::MutexLock lock(&mutex_);
    unkept_.emplace_back(entry, response);
    tick_.Signal();
    return;
  }
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  absl::Time started;
  {
    absl::MutexLock lock(&mutex_);
    Job& job = entry->job;
    SetState(*entry, state);
    job.end_time = now;
    started = job.start_time;
    entry->place = Place::kEnded;
    if (entry->controls != nullptr) {
      bytes_read = entry->controls->stats.bytes_read;
      bytes_written = entry->controls->stats.bytes_written;
    }
    ended_.emplace(now, job.number);
    ++num_ended_[job.client];
    if (--num_live_[job.client] == 0) num_live_.erase(job.client);
    by_destination_.erase(job.request.destination);
  }
  metrics_.CountJob(KindName(entry->job.request.kind), StateName(state));
  if (started != absl::InfinitePast()) {
    metrics_.ObserveJob(KindName(entry->job.request.kind), now - started);
  }
  metrics_.CountBytes("read", bytes_read);
  metrics_.CountBytes("written", bytes_written);
  DCP_LOG(kInfo) << "event=job_ended id=" << entry->job.id
                 << " client=" << LogText(entry->job.client)
                 << " state=" << StateName(state)
                 << " source=" << LogText(entry->job.request.source)
                 << " destination=" << LogText(entry->job.request.destination)
                 << " bytes_read=" << bytes_read
                 << " bytes_written=" << bytes_written
                 << (response.ok() ? "" : " error=")
                 << (response.ok() ? ""
                                   : LogText(response.status().ToString()));
  Notify(entry);
  Prune();
}

void JobManager::FinishUnkept() {
  std::vector<std::pair<EntryPtr, absl::StatusOr<std::string>>> unkept;
  {
    absl::MutexLock lock(&mutex_);
    unkept.swap(unkept_);
  }
  for (const auto& [entry, response] : unkept) Finish(entry, response);
}

void JobManager::Tick() {
  absl::Duration pruned = SteadyNow();
  while (true) {
    std::vector<EntryPtr> running;
    {
      absl::MutexLock lock(&mutex_);
      if (exiting_) return;
      // A signal only ends the long wait early, because a job has begun.
      const bool passed = tick_.WaitWithTimeout(
          &mutex_,
          running_.empty() && unkept_.empty() ? kPrunePeriod : kTickPeriod);
      if (exiting_) return;
      if (!passed) continue;
      for (const auto& [number, entry] : running_) {
        if (entry->controls == nullptr) continue;
        const TransferStats& stats = entry->controls->stats;
        entry->progress.Sample(stats.bytes_read + stats.bytes_written,
                               absl::Now());
        running.push_back(entry);
      }
    }
    for (const EntryPtr& entry : running) Notify(entry);
    FinishUnkept();
    if (SteadyNow() - pruned >= kPrunePeriod) {
      Prune();
      pruned = SteadyNow();
    }
  }
}

// --- Notification.

void JobManager::Notify(const EntryPtr& entry) {
  std::vector<Changed> watchers;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [watcher, changed] : entry->watchers) {
      watchers.push_back(changed);
    }
  }
  for (const Changed& changed : watchers) changed();
}

JobManager::Operation JobManager::Describe(const Entry& entry) const {
  const Job& job = entry.job;
  JobMetadata metadata;
  metadata.set_kind(job.request.kind);
  metadata.set_state(job.state);
  metadata.set_source(ToUtf8(job.request.source));
  metadata.set_destination(ToUtf8(job.request.destination));
  SetTimestamp(job.create_time, *metadata.mutable_create_time());
  if (job.start_time != absl::InfinitePast()) {
    SetTimestamp(job.start_time, *metadata.mutable_start_time());
  }
  if (HasEnded(job.state)) {
    SetTimestamp(job.end_time, *metadata.mutable_end_time());
  }
  metadata.set_memory_bytes(job.request.memory_bytes);
  metadata.set_num_restarts(job.num_restarts);
  metadata.set_client(ToUtf8(job.client));
  if (entry.controls != nullptr) {
    const TransferStats& stats = entry.controls->stats;
    metadata.set_files_total(entry.size.num_files);
    metadata.set_files_done(entry.controls->log.num_files);
    entry.progress.Fill(stats.bytes_read + stats.bytes_written, metadata);
  }
  if (HasEnded(job.state)) metadata.clear_remaining();
  Operation operation;
  operation.set_name(absl::StrCat(kNamePrefix, job.id));
  operation.mutable_metadata()->PackFrom(metadata);
  operation.set_done(HasEnded(job.state));
  return operation;
}

absl::StatusOr<JobManager::Operation> JobManager::Snapshot(
    const EntryPtr& entry) {
  Operation operation;
  {
    absl::MutexLock lock(&mutex_);
    operation = Describe(*entry);
  }
  if (!operation.done()) return operation;
  const absl::StatusOr<JobOutcome> outcome =
      journal_.Outcome(entry->job.number);
  if (absl::IsNotFound(outcome.status())) return NoSuchJob(operation.name());
  DCP_RETURN_IF_ERROR(outcome.status());
  DCP_RETURN_IF_ERROR(AddOutcome(*outcome, operation));
  return operation;
}

bool JobManager::exiting() const {
  absl::MutexLock lock(&mutex_);
  return exiting_;
}

bool JobManager::draining() const {
  absl::MutexLock lock(&mutex_);
  return draining_;
}

uint64_t JobManager::num_running() const {
  absl::MutexLock lock(&mutex_);
  return running_.size();
}

uint64_t JobManager::num_queued() const {
  absl::MutexLock lock(&mutex_);
  return queue_.size();
}

// --- Draining.

void JobManager::Drain(absl::Time deadline) {
  std::vector<EntryPtr> waiting;
  std::vector<EntryPtr> watched;
  {
    absl::MutexLock lock(&mutex_);
    draining_ = true;
    for (const auto& [number, entry] : entries_) {
      if (entry->place == Place::kAdmitting || entry->place == Place::kReady) {
        waiting.push_back(entry);
      }
    }
    for (const auto& [watcher, entry] : watched_) watched.push_back(entry);
  }
  for (const EntryPtr& entry : waiting) {
    if (Withdraw(entry)) Settle(entry);
  }
  for (const EntryPtr& entry : watched) Notify(entry);
  std::vector<std::stop_source> stops;
  {
    absl::MutexLock lock(&mutex_);
    while (!running_.empty() && !drained_.WaitWithDeadline(&mutex_, deadline)) {
    }
    stopping_ = true;
    for (const auto& [number, entry] : running_) stops.push_back(entry->stop);
  }
  for (std::stop_source& stop : stops) stop.request_stop();
  absl::MutexLock lock(&mutex_);
  while (!running_.empty() || IsAdmitting()) drained_.Wait(&mutex_);
}

bool JobManager::IsAdmitting() const {
  return std::any_of(entries_.begin(), entries_.end(), [](const auto& entry) {
    return entry.second->place == Place::kAdmitting;
  });
}

}  // namespace dcp::server
