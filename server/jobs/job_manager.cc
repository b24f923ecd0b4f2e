// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/job_manager.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "dcp/base/check.h"
#include "dcp/base/error_place.h"
#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/destination/save_id.h"
#include "proto/error_detail.h"
#include "server/jobs/job_operation.h"
#include "server/process/log_text.h"
#include "server/process/refusal.h"

namespace dcp::server {
namespace {

// Threads per root for plans, each of which may take a minute, and for cleaning
// up after cancelled jobs.
constexpr size_t kNumErrandThreads = 2;
constexpr size_t kErrandThreadsOfAClient = 1;
// No limit is needed: plans have another limit, and each job occurs at most
// once.
constexpr size_t kMaxErrands = SIZE_MAX;
// A part of kMaxWaitingPlans, so that one client does not use up all places.
constexpr size_t kMaxWaitingPlansOfAClient = kMaxWaitingPlans / 4 * 3;

// The error names the other job only to the client that submitted it.
absl::Status DestinationInUse(const Client& client, const Job& writer) {
  const std::string& path = writer.request.destination;
  absl::Status status =
      WithPlace(absl::FailedPreconditionError(absl::StrCat(
                    "another job that has not ended writes to ", path)),
                {.path = path});
  if (writer.client != client.name()) {
    return WithReason(std::move(status), ErrorReason::DESTINATION_IN_USE);
  }
  return WithReason(std::move(status), ErrorReason::DESTINATION_IN_USE,
                    {{"name", OperationName(writer)}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobManager>> JobManager::Start(
    JobJournal& journal, const JobRunner& runner, MemoryBudget& budget,
    Metrics& metrics, const ServerOptions& options, uint64_t log_step_bytes) {
  std::unique_ptr<JobManager> manager(new JobManager(
      journal, runner, budget, metrics, options, log_step_bytes));
  DCP_RETURN_IF_ERROR(manager->scheduler_.Start());
  return manager;
}

JobManager::JobManager(JobJournal& journal, const JobRunner& runner,
                       MemoryBudget& budget, Metrics& metrics,
                       const ServerOptions& options, uint64_t log_step_bytes)
    : journal_(journal),
      runner_(runner),
      options_(options),
      errands_(runner.access(), {.num_threads = kNumErrandThreads,
                                 .per_client = kErrandThreadsOfAClient,
                                 .max_waiting = kMaxErrands,
                                 .low_priority = true}),
      scheduler_(jobs_, journal, runner, watchers_, errands_, budget, metrics,
                 options, log_step_bytes) {}

JobManager::~JobManager() {
  Drain(absl::ZeroDuration());
  stop_plans_.request_stop();
  scheduler_.Stop();
  errands_.Stop();
}

absl::StatusOr<JobEntryPtr> JobManager::CheckSubmit(
    const Client& client, const JobRequest& request) const {
  const bool draining = scheduler_.draining();
  const uint64_t num_queued = scheduler_.num_queued();
  absl::MutexLock lock(&jobs_.mutex());
  const JobEntryPtr known =
      jobs_.FindRequest(client.name(), request.request_id);
  if (known != nullptr) return known;
  if (draining) return ServerDraining();
  if (num_queued >= static_cast<uint64_t>(options_.max_queued_jobs)) {
    return LimitReached(
        {.name = "max-queued-jobs",
         .value = static_cast<uint64_t>(options_.max_queued_jobs)},
        absl::StrCat(num_queued, " jobs are queued, which is the limit"));
  }
  const int64_t num_live = jobs_.num_live(client.name());
  if (num_live >= options_.max_jobs_per_client) {
    return LimitReached(
        {.name = "max-jobs-per-client",
         .value = static_cast<uint64_t>(options_.max_jobs_per_client)},
        absl::StrCat(client.name(), " has ", num_live,
                     " jobs queued or running, which is the limit for one "
                     "client"));
  }
  const JobEntryPtr writer = jobs_.FindWriter(request.destination);
  if (writer != nullptr) return DestinationInUse(client, writer->job);
  return JobEntryPtr();
}

absl::Status JobManager::CheckSame(const JobEntryPtr& entry,
                                   const JobRequest& request) {
  DCP_ASSIGN_OR_RETURN(const std::string bytes,
                       journal_.RequestBytes(entry->job.number));
  if (entry->job.request.kind == request.kind && bytes == request.bytes) {
    return absl::OkStatus();
  }
  return WithReason(absl::AlreadyExistsError(
                        absl::StrCat("options.request_id ", request.request_id,
                                     " was used for another request")),
                    ErrorReason::REQUEST_ID_REUSED,
                    {{"request_id", request.request_id}});
}

absl::StatusOr<JobManager::Operation> JobManager::Submit(const Client& client,
                                                         JobRequest request) {
  JobEntryPtr entry;
  {
    absl::MutexLock submit_lock(&submit_mutex_);
    DCP_ASSIGN_OR_RETURN(const JobEntryPtr known, CheckSubmit(client, request));
    if (known != nullptr) {
      DCP_RETURN_IF_ERROR(CheckSame(known, request));
      return Snapshot(known);
    }
    entry = std::make_shared<JobEntry>();
    entry->job.id = NewSaveId();
    entry->job.client = client.name();
    entry->job.create_time = absl::Now();
    entry->job.request = std::move(request);
    DCP_RETURN_IF_ERROR(journal_.Add(entry->job));
    entry->job.request.bytes.clear();
    scheduler_.Add(entry);
  }
  DCP_LOG(kInfo) << "event=job_submitted id=" << entry->job.id
                 << " client=" << client.name()
                 << " kind=" << KindName(entry->job.request.kind)
                 << CallField(entry->job.request);
  absl::StatusOr<Operation> operation = Snapshot(entry);
  scheduler_.Dispatch();
  return operation;
}

absl::Status JobManager::BeginPlan(const std::string& client) {
  absl::MutexLock lock(&plans_mutex_);
  if (num_plans_ >= kMaxWaitingPlans) {
    return LimitReached(
        {.name = "plans", .value = kMaxWaitingPlans},
        absl::StrCat(num_plans_,
                     " requests wait for their plan, which is the limit"));
  }
  size_t& num_of_client = num_plans_of_[client];
  if (num_of_client >= kMaxWaitingPlansOfAClient) {
    return LimitReached(
        {.name = "plans", .value = kMaxWaitingPlansOfAClient},
        absl::StrCat(num_of_client, " requests of ", client,
                     " wait for their plan, which is the limit for one "
                     "client"));
  }
  ++num_of_client;
  ++num_plans_;
  return absl::OkStatus();
}

void JobManager::EndPlan(const std::string& client) {
  absl::MutexLock lock(&plans_mutex_);
  --num_plans_;
  if (--num_plans_of_[client] == 0) num_plans_of_.erase(client);
}

absl::Status JobManager::Plan(const Client& client, JobRequest request,
                              std::stop_token stop, Planned planned) {
  if (draining()) return ServerDraining();
  DCP_RETURN_IF_ERROR(BeginPlan(client.name()));
  TaskQueue& threads = *errands_.QueueFor(request.source);
  return threads.Post(
      client.name(), [this, &client, request = std::move(request), stop,
                      planned = std::move(planned)] {
        absl::StatusOr<std::string> plan = ServerDraining();
        if (stop.stop_requested()) {
          plan = absl::CancelledError("the caller is gone");
        } else if (!scheduler_.exiting()) {
          std::stop_source either;
          const auto end = [&either] { either.request_stop(); };
          const std::stop_callback gone(stop, end);
          const std::stop_callback exiting(stop_plans_.get_token(), end);
          plan = runner_.Plan(request, client, either.get_token());
        }
        EndPlan(client.name());
        if (!plan.ok()) return planned(plan.status());
        Operation operation;
        operation.set_done(true);
        const absl::Status added = AddOutcome(MakeOutcome(plan), operation);
        DCP_CHECK(added.ok(), added.message());
        planned(std::move(operation));
      });
}

absl::StatusOr<JobManager::Operation> JobManager::Get(const Client& client,
                                                      absl::string_view name) {
  JobEntryPtr entry;
  {
    absl::MutexLock lock(&jobs_.mutex());
    DCP_ASSIGN_OR_RETURN(entry, jobs_.Find(client, name));
  }
  return Snapshot(entry);
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
  const std::vector<JobEntryPtr> found =
      jobs_.Choose(client, filter, after, static_cast<size_t>(page_size) + 1);
  JobPage page;
  size_t num_bytes = 0;
  for (const JobEntryPtr& entry : found) {
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

absl::Status JobManager::Cancel(const Client& client, absl::string_view name,
                                absl::string_view call) {
  JobEntryPtr entry;
  {
    absl::MutexLock lock(&jobs_.mutex());
    DCP_ASSIGN_OR_RETURN(entry, jobs_.Find(client, name));
    if (HasEnded(entry->job.state) || entry->job.cancel_requested) {
      return absl::OkStatus();
    }
  }
  // From here on, a server that is killed cancels the job after its next start.
  DCP_RETURN_IF_ERROR(journal_.RequestCancel(entry->job.number));
  DCP_LOG(kInfo) << "event=job_cancel_requested id=" << entry->job.id
                 << " client=" << LogText(client.name())
                 << (call.empty() ? "" : " call=") << call;
  scheduler_.Cancel(entry);
  return absl::OkStatus();
}

absl::Status JobManager::Delete(const Client& client, absl::string_view name) {
  JobEntryPtr entry;
  {
    absl::MutexLock lock(&jobs_.mutex());
    DCP_ASSIGN_OR_RETURN(entry, jobs_.Find(client, name));
    if (!HasEnded(entry->job.state)) {
      return WithReason(
          absl::FailedPreconditionError(absl::StrCat(
              name, " has not ended; cancel it first, then delete it")),
          ErrorReason::JOB_NOT_ENDED, {{"name", std::string(name)}});
    }
  }
  DCP_RETURN_IF_ERROR(journal_.Remove(entry->job.number));
  absl::MutexLock lock(&jobs_.mutex());
  jobs_.Forget(*entry);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> JobManager::Watch(const Client& client,
                                           absl::string_view name,
                                           JobWatchers::Changed changed) {
  JobEntryPtr entry;
  {
    absl::MutexLock lock(&jobs_.mutex());
    DCP_ASSIGN_OR_RETURN(entry, jobs_.Find(client, name));
  }
  return watchers_.Add(entry->job, std::move(changed));
}

absl::StatusOr<JobManager::Operation> JobManager::Snapshot(
    const JobEntryPtr& entry) {
  Operation operation;
  {
    absl::MutexLock lock(&jobs_.mutex());
    operation = DescribeJob(*entry);
  }
  if (!operation.done()) return operation;
  const absl::StatusOr<JobOutcome> outcome =
      journal_.Outcome(entry->job.number);
  if (absl::IsNotFound(outcome.status())) return NoSuchJob(operation.name());
  DCP_RETURN_IF_ERROR(outcome.status());
  DCP_RETURN_IF_ERROR(AddOutcome(*outcome, operation));
  return operation;
}

}  // namespace dcp::server
