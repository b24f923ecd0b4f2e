// SPDX-License-Identifier: Apache-2.0
// Groups of reads with elements that are put in place together. If a matrix is
// transposed, a stripe is read in one short range for each row, and a row's
// elements go to as many places, each in a separate cache line. The elements of
// many rows fill the lines. Pure; any thread.
#ifndef DCP_PLAN_READ_GROUPS_H_
#define DCP_PLAN_READ_GROUPS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "dcp/plan/read_schedule.h"
#include "dcp/plan/strided/nest_run.h"

namespace dcp {

// Consecutive ranges in a schedule: rows of one file that are equally long and
// equally far apart, and serve the same nests.
struct ReadGroup {
  uint32_t first_range = 0;
  uint32_t num_ranges = 0;

  friend bool operator==(const ReadGroup&, const ReadGroup&) = default;
};

// A group's rows and their place in the memory in which they are collected:
// rows.count * rows.pitch bytes.
FileRows GroupRows(const ReadGroup& group, const ReadSchedule& schedule);

// The groups in a schedule for `num_runs` runs and then `nests`, in schedule
// order. Collected, each has at most `max_bytes`. Ranges that a group would not
// help are in none: those that serve runs, or only nests with units that fill
// cache lines, and those that are too long or too few to make a group.
std::vector<ReadGroup> GroupReads(const ReadSchedule& schedule, size_t num_runs,
                                  absl::Span<const NestRun> nests,
                                  uint64_t max_bytes);

}  // namespace dcp

#endif  // DCP_PLAN_READ_GROUPS_H_
