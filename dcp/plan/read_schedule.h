// SPDX-License-Identifier: Apache-2.0
// Turns a batch's runs into reads: in each file, ranges are sorted, merged if
// they overlap or are close, and cut if they are long, so that each byte is
// read once and the disk gets few large requests. Pure; any thread.
#ifndef DCP_PLAN_READ_SCHEDULE_H_
#define DCP_PLAN_READ_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "dcp/base/limits.h"
#include "dcp/plan/strided/copy_run.h"
#include "dcp/plan/strided/nest_run.h"

namespace dcp {

struct ReadRange {
  uint32_t file;
  uint64_t offset;
  uint64_t length;  // that this range serves; see kReadMarginBytes
  // The runs that have elements here: run_indices[first_run, + num_runs). Nests
  // are counted after the other runs.
  uint32_t first_run;
  uint32_t num_runs;

  friend bool operator==(const ReadRange&, const ReadRange&) = default;
};

struct ReadSchedule {
  std::vector<ReadRange> ranges;      // sorted by (file, offset), disjoint
  std::vector<uint32_t> run_indices;  // into the runs given, then the nests
};

// The largest gap that is read too if a request takes a round trip to an object
// store: at 20 ms and 80 MB/s per connection, a request costs as much as 1.6
// MB.
inline constexpr uint64_t kObjectReadGapBytes = uint64_t{1} << 20;

struct ReadLimits {
  uint64_t max_bytes;  // in one range
  // A run becomes several ranges if the units lie further apart.
  uint64_t gap_bytes = kReadGapBytes;
};

ReadSchedule ScheduleReads(absl::Span<const CopyRun> runs,
                           const ReadLimits& limits);
// The same for runs and nests that are read together.
ReadSchedule ScheduleReads(absl::Span<const CopyRun> runs,
                           absl::Span<const NestRun> nests,
                           const ReadLimits& limits);

}  // namespace dcp

#endif  // DCP_PLAN_READ_SCHEDULE_H_
