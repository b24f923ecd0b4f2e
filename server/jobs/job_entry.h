// SPDX-License-Identifier: Apache-2.0
// JobEntry: a job as the running server knows it: the job in the journal, the
// stage that it has reached, and the resources that it holds. Plain data;
// JobTable says which lock guards it.
#ifndef SERVER_JOBS_JOB_ENTRY_H_
#define SERVER_JOBS_JOB_ENTRY_H_

#include <cstdint>
#include <memory>
#include <stop_token>

#include "dcp/base/steady_time.h"
#include "server/jobs/job.h"
#include "server/jobs/job_progress.h"
#include "server/jobs/job_runner.h"
#include "server/memory/memory_budget.h"

namespace dcp::server {

// The stages on the way to a job's end.
enum class JobStage : uint8_t {
  kQueued,     // in the queue, or nowhere once the server drains
  kAdmitting,  // waits for memory
  kReady,      // has memory and waits for a thread
  kRunning,    // on a thread
  kSettling,   // about to be cancelled
  kEnded,
};

struct JobEntry {
  // The number, the id, the client and the request never change.
  Job job;
  JobStage stage = JobStage::kQueued;
  uint64_t ticket = 0;       // in the memory budget; 0: not known yet
  bool refused = false;      // by the memory budget
  bool keeps_files = false;  // the run stopped, and left the files to the next
  Reservation memory;
  std::stop_source stop;
  // For the current or the last run. Owners: this and that run.
  std::shared_ptr<JobControls> controls;
  // When the run began, by SteadyNow.
  std::optional<absl::Duration> runs_since;
  JobSize size;
  JobProgress progress;
};

// Owners: the table, and each thread that works on the job.
using JobEntryPtr = std::shared_ptr<JobEntry>;

}  // namespace dcp::server

#endif  // SERVER_JOBS_JOB_ENTRY_H_
