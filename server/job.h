// Job: one piece of work that a client asked for and that outlives its call,
// and the states it goes through, as a table. Plain data.
#ifndef SERVER_JOB_H_
#define SERVER_JOB_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tessera/v1/job_service.pb.h"

namespace dcp::server {

using JobKind = tessera::v1::JobMetadata::Kind;
using JobState = tessera::v1::JobMetadata::State;
using tessera::v1::JobMetadata;

// What a client asked for.
struct JobRequest {
  JobKind kind = JobMetadata::KIND_UNSPECIFIED;
  std::string request_id;  // may be empty
  std::string bytes;       // the serialized message of `kind`
  std::string source;      // as it is to be opened
  std::string destination;
  uint64_t memory_bytes = 0;
};

struct Job {
  int64_t number = 0;  // in the order of creation, never used again
  std::string id;      // of "operations/<id>"
  std::string client;
  JobRequest request;  // its bytes only where somebody needs them
  JobState state = JobMetadata::PENDING;
  absl::Time create_time;
  absl::Time start_time = absl::InfinitePast();  // until it has
  absl::Time end_time = absl::InfinitePast();
  bool cancel_requested = false;
  uint32_t num_restarts = 0;
};

// How a job ended: one of them is not empty, of a job that was cancelled too.
struct JobOutcome {
  std::string response;  // a serialized google.protobuf.Any
  std::string error;     // a serialized google.rpc.Status
};

// SUCCEEDED, FAILED, CANCELLED.
bool HasEnded(JobState state);
// Whether a job in state `from` may come to be in state `to`.
bool MayBecome(JobState from, JobState to);

// "convert", "running"; for logs and metrics.
absl::string_view KindName(JobKind kind);
absl::string_view StateName(JobState state);

}  // namespace dcp::server

#endif  // SERVER_JOB_H_
