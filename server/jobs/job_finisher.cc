// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/job_finisher.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/base/log.h"
#include "dcp/base/steady_time.h"
#include "server/jobs/job.h"
#include "server/jobs/job_operation.h"
#include "server/process/log_text.h"

namespace dcp::server {
namespace {

JobState StateAfter(const absl::Status& status, bool cancel_requested) {
  if (status.ok()) return JobMetadata::SUCCEEDED;
  return cancel_requested && absl::IsCancelled(status) ? JobMetadata::CANCELLED
                                                       : JobMetadata::FAILED;
}

struct JobBytes {
  uint64_t read = 0;
  uint64_t written = 0;
};

void LogEnd(const Job& job, JobState state, const JobBytes& bytes,
            const absl::Status& status) {
  DCP_LOG(kInfo) << "event=job_ended id=" << job.id << CallField(job.request)
                 << " client=" << LogText(job.client)
                 << " state=" << StateName(state)
                 << " source=" << LogText(job.request.source)
                 << " destination=" << LogText(job.request.destination)
                 << " bytes_read=" << bytes.read
                 << " bytes_written=" << bytes.written
                 << (status.ok() ? "" : " error=")
                 << (status.ok() ? "" : LogText(status.ToString()));
}

}  // namespace

bool JobFinisher::Finish(const JobEntryPtr& entry,
                         const absl::StatusOr<std::string>& response) {
  absl::Time now = absl::Now();
  bool cancel_requested = false;
  {
    absl::MutexLock lock(&jobs_.mutex());
    // The clock may have been set back.
    now = std::max({now, entry->job.start_time, entry->job.create_time});
    cancel_requested = entry->job.cancel_requested;
  }
  const JobState state = StateAfter(response.status(), cancel_requested);
  // The journal comes first, so that a job that a client has seen ended stays
  // ended.
  const absl::Status kept =
      journal_.End(entry->job.number, state, now, MakeOutcome(response));
  if (!kept.ok()) {
    DCP_LOG(kError) << "event=journal_failed id=" << entry->job.id
                    << CallField(entry->job.request)
                    << " error=" << LogText(kept.message());
    absl::MutexLock lock(&jobs_.mutex());
    unkept_.emplace_back(entry, response);
    return false;
  }
  JobBytes bytes;
  std::optional<absl::Duration> runs_since;
  {
    absl::MutexLock lock(&jobs_.mutex());
    SetState(entry->job, state);
    entry->job.end_time = now;
    runs_since = entry->runs_since;
    if (entry->controls != nullptr) {
      bytes = {.read = entry->controls->stats.bytes_read,
               .written = entry->controls->stats.bytes_written};
    }
    jobs_.End(*entry);
  }
  const absl::string_view kind = KindName(entry->job.request.kind);
  metrics_.CountJob(kind, StateName(state));
  if (runs_since.has_value()) {
    metrics_.ObserveJob(kind, SteadyNow() - *runs_since);
  }
  metrics_.CountBytes("read", bytes.read);
  metrics_.CountBytes("written", bytes.written);
  LogEnd(entry->job, state, bytes, response.status());
  watchers_.Notify(entry->job.number);
  Prune();
  return true;
}

void JobFinisher::FinishUnkept() {
  std::vector<std::pair<JobEntryPtr, absl::StatusOr<std::string>>> unkept;
  {
    absl::MutexLock lock(&jobs_.mutex());
    unkept.swap(unkept_);
  }
  for (const auto& [entry, response] : unkept) Finish(entry, response);
}

void JobFinisher::Prune() {
  std::vector<int64_t> numbers;
  {
    absl::MutexLock lock(&jobs_.mutex());
    const absl::Time oldest = absl::Now() - options_.keep_jobs;
    while (const JobEntryPtr entry =
               jobs_.NextToForget(oldest, options_.max_ended_jobs)) {
      jobs_.Forget(*entry);
      numbers.push_back(entry->job.number);
    }
  }
  for (const int64_t number : numbers) {
    const absl::Status removed = journal_.Remove(number);
    if (!removed.ok()) {
      DCP_LOG(kError) << "event=journal_failed error=" << removed.message();
    }
  }
}

}  // namespace dcp::server
