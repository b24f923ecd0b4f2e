// SPDX-License-Identifier: Apache-2.0
// JobProgress: a job's rate and remaining time, computed from byte counts at
// several times of SteadyNow. Thread-compatible.
#ifndef SERVER_JOBS_JOB_PROGRESS_H_
#define SERVER_JOBS_JOB_PROGRESS_H_

#include <cstdint>
#include <deque>

#include "absl/time/time.h"
#include "dcp/base/steady_time.h"
#include "server/jobs/job.h"
#include "tessera/v1/job_service.pb.h"

namespace dcp::server {

// Samples, one per second, over which the rate is measured. Fewer would make it
// jump with every fsync, more would hide that a disk has become slow.
inline constexpr size_t kRateSamples = 10;

class JobProgress {
 public:
  // Called when the transfer begins: `total_bytes` in all, of which earlier
  // runs have done `kept_bytes`.
  void Begin(uint64_t total_bytes, uint64_t kept_bytes, absl::Duration now);
  // This run has moved `num_bytes` so far.
  void Sample(uint64_t num_bytes, absl::Duration now);

  // Sets bytes_done, bytes_total, bytes_per_second and remaining. This run has
  // moved `num_bytes` so far.
  void Fill(uint64_t num_bytes, tessera::v1::JobMetadata& metadata) const;

 private:
  struct Point {
    absl::Duration time;
    uint64_t num_bytes;
  };
  uint64_t total_bytes_ = 0;
  uint64_t kept_bytes_ = 0;
  std::deque<Point> points_;  // the first and the last differ in time
};

}  // namespace dcp::server

#endif  // SERVER_JOBS_JOB_PROGRESS_H_
