// SPDX-License-Identifier: Apache-2.0
// Job: a task that a client requested and that outlives the call; the states,
// and a table of the transitions between them. Plain data.
#ifndef SERVER_JOBS_JOB_H_
#define SERVER_JOBS_JOB_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tessera/v1/job_service.pb.h"

namespace dcp::server {

using JobKind = tessera::v1::JobMetadata::Kind;
using JobState = tessera::v1::JobMetadata::State;
using tessera::v1::JobMetadata;

// A client's request.
struct JobRequest {
  JobKind kind = JobMetadata::KIND_UNSPECIFIED;
  std::string request_id;  // may be empty
  // The number of the call that submitted it, for log lines of the same
  // process: not in the journal.
  std::string call = {};
  std::string bytes;   // the serialized message of `kind`
  std::string source;  // path as the server opens it
  std::string destination;
  uint64_t memory_bytes = 0;
};

struct Job {
  int64_t number = 0;  // in the order of creation; never reused
  std::string id;      // as in "operations/<id>"
  std::string client;
  JobRequest request;  // the bytes are loaded only where they are needed
  JobState state = JobMetadata::PENDING;
  absl::Time create_time;
  absl::Time start_time = absl::InfinitePast();  // as long as it is pending
  absl::Time end_time = absl::InfinitePast();
  bool cancel_requested = false;
  uint32_t num_restarts = 0;
};

// How a job ended. Exactly one field is not empty, also for a cancelled job.
struct JobOutcome {
  std::string response;  // a serialized google.protobuf.Any
  std::string error;     // a serialized google.rpc.Status
};

// SUCCEEDED, FAILED, CANCELLED.
bool HasEnded(JobState state);
// Whether a job may change from state `from` to state `to`.
bool MayBecome(JobState from, JobState to);
// The transition must be allowed.
void SetState(Job& job, JobState state);

// " call=17" for a log line about the job; empty if the call is not known,
// because an earlier process took it.
std::string CallField(const JobRequest& request);

// "convert", "running", etc.; for logs and metrics.
absl::string_view KindName(JobKind kind);
absl::string_view StateName(JobState state);

}  // namespace dcp::server

#endif  // SERVER_JOBS_JOB_H_
