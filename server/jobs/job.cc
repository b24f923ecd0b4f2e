// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/job.h"

#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"

namespace dcp::server {
namespace {

struct Step {
  JobState from;
  JobState to;
};

// The allowed transitions. A job that was interrupted by a stop or a kill of
// the server is PENDING at the next start.
constexpr Step kSteps[] = {
    {JobMetadata::PENDING, JobMetadata::PLANNING},
    {JobMetadata::PENDING, JobMetadata::FAILED},
    {JobMetadata::PENDING, JobMetadata::CANCELLED},
    {JobMetadata::PLANNING, JobMetadata::RUNNING},
    // The server was killed after the job had made its checkpoint.
    {JobMetadata::PLANNING, JobMetadata::SUCCEEDED},
    {JobMetadata::PLANNING, JobMetadata::FAILED},
    {JobMetadata::PLANNING, JobMetadata::CANCELLED},
    {JobMetadata::PLANNING, JobMetadata::PENDING},
    {JobMetadata::RUNNING, JobMetadata::FINISHING},
    {JobMetadata::RUNNING, JobMetadata::SUCCEEDED},
    {JobMetadata::RUNNING, JobMetadata::FAILED},
    {JobMetadata::RUNNING, JobMetadata::CANCELLED},
    {JobMetadata::RUNNING, JobMetadata::PENDING},
    {JobMetadata::FINISHING, JobMetadata::SUCCEEDED},
    {JobMetadata::FINISHING, JobMetadata::FAILED},
    {JobMetadata::FINISHING, JobMetadata::CANCELLED},
    {JobMetadata::FINISHING, JobMetadata::PENDING},
};

}  // namespace

bool HasEnded(JobState state) {
  return state == JobMetadata::SUCCEEDED || state == JobMetadata::FAILED ||
         state == JobMetadata::CANCELLED;
}

bool MayBecome(JobState from, JobState to) {
  for (const Step& step : kSteps) {
    if (step.from == from && step.to == to) return true;
  }
  return false;
}

void SetState(Job& job, JobState state) {
  DCP_CHECK(MayBecome(job.state, state), job.id, " from ", StateName(job.state),
            " to ", StateName(state));
  job.state = state;
}

std::string CallField(const JobRequest& request) {
  return request.call.empty() ? "" : absl::StrCat(" call=", request.call);
}

absl::string_view KindName(JobKind kind) {
  switch (kind) {
    case JobMetadata::CONVERT:
      return "convert";
    case JobMetadata::RESHARD:
      return "reshard";
    case JobMetadata::CONSOLIDATE:
      return "consolidate";
    case JobMetadata::VERIFY:
      return "verify";
    default:
      return "unknown";
  }
}

absl::string_view StateName(JobState state) {
  switch (state) {
    case JobMetadata::PENDING:
      return "pending";
    case JobMetadata::PLANNING:
      return "planning";
    case JobMetadata::RUNNING:
      return "running";
    case JobMetadata::FINISHING:
      return "finishing";
    case JobMetadata::SUCCEEDED:
      return "succeeded";
    case JobMetadata::FAILED:
      return "failed";
    case JobMetadata::CANCELLED:
      return "cancelled";
    default:
      return "unknown";
  }
}

}  // namespace dcp::server
