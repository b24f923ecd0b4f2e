// JobProgress: how fast a job comes along and how long it will take, from
// counts of bytes at several times. Thread-compatible.
#ifndef SERVER_JOB_PROGRESS_H_
#define SERVER_JOB_PROGRESS_H_

#include <cstdint>
#include <deque>

#include "absl/time/time.h"
#include "server/job.h"
#include "tessera/v1/job_service.pb.h"

namespace dcp::server {

// The rate is that of the last seconds: as many samples, one a second. Less
// would jump with every fsync, more would hide that a disk has become slow.
inline constexpr size_t kRateSamples = 10;

class JobProgress {
 public:
  // Payload begins to move; `total_bytes` in all, `kept_bytes` of them before.
  void Begin(uint64_t total_bytes, uint64_t kept_bytes, absl::Time now);
  // By now `num_bytes` have moved in this run.
  void Sample(uint64_t num_bytes, absl::Time now);

  // bytes_done, bytes_total, bytes_per_second, remaining. By now `num_bytes`
  // have moved in this run.
  void Fill(uint64_t num_bytes, tessera::v1::JobMetadata& metadata) const;

 private:
  struct Point {
    absl::Time time;
    uint64_t num_bytes;
  };
  uint64_t total_bytes_ = 0;
  uint64_t kept_bytes_ = 0;
  std::deque<Point> points_;  // the first and the last differ in time
};

}  // namespace dcp::server

#endif  // SERVER_JOB_PROGRESS_H_
