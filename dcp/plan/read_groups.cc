// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/read_groups.h"

#include <algorithm>
#include <cstddef>

#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"

namespace dcp {
namespace {

constexpr uint64_t kLineBytes = 64;

// The fewest rows that are worth collecting, and the most that are put in place
// together: more would not make the copies faster.
constexpr uint64_t kMinRows = 4;
constexpr uint64_t kMaxRows = 256;

uint64_t PitchFor(uint64_t length) {
  return AlignUp(length + kReadMarginBytes, kLineBytes);
}

// The numbers of the runs and nests that a range serves.
absl::Span<const uint32_t> ServedRuns(const ReadSchedule& schedule,
                                      const ReadRange& range) {
  return absl::MakeConstSpan(schedule.run_indices)
      .subspan(range.first_run, range.num_runs);
}

bool AreAlike(const ReadSchedule& schedule, const ReadRange& a,
              const ReadRange& b) {
  return a.file == b.file && a.length == b.length &&
         ServedRuns(schedule, a) == ServedRuns(schedule, b);
}

// The number of ranges from `first` on that are rows of the same stripe.
size_t NumAlike(const ReadSchedule& schedule, size_t first) {
  const std::vector<ReadRange>& ranges = schedule.ranges;
  size_t end = first + 1;
  while (end < ranges.size() &&
         AreAlike(schedule, ranges[first], ranges[end]) &&
         ranges[end].offset - ranges[end - 1].offset ==
             ranges[first + 1].offset - ranges[first].offset) {
    ++end;
  }
  return end - first;
}

// The number of stripe rows in a group; 0 if groups would not help.
uint64_t RowsPerGroup(const ReadSchedule& schedule, const ReadRange& row,
                      size_t num_runs, absl::Span<const NestRun> nests,
                      uint64_t max_bytes) {
  uint64_t rows_of_line = 0;
  for (const uint32_t number : ServedRuns(schedule, row)) {
    if (number < num_runs) return 0;
    const NestRun& nest = nests[number - num_runs];
    const uint64_t unit_bytes = nest.unit * nest.dst_element_bytes;
    rows_of_line = std::max(rows_of_line, kLineBytes / unit_bytes);
  }
  if (rows_of_line <= 1) return 0;
  const uint64_t most = std::min(max_bytes / PitchFor(row.length), kMaxRows);
  if (most < kMinRows) return 0;
  // Whole lines, if possible.
  return most > rows_of_line ? most - most % rows_of_line : most;
}

}  // namespace

FileRows GroupRows(const ReadGroup& group, const ReadSchedule& schedule) {
  const ReadRange& first = schedule.ranges[group.first_range];
  const ReadRange& second = schedule.ranges[group.first_range + 1];
  return {.offset = first.offset,
          .length = first.length,
          .stride = second.offset - first.offset,
          .count = group.num_ranges,
          .pitch = PitchFor(first.length)};
}

std::vector<ReadGroup> GroupReads(const ReadSchedule& schedule, size_t num_runs,
                                  absl::Span<const NestRun> nests,
                                  uint64_t max_bytes) {
  std::vector<ReadGroup> groups;
  for (size_t first = 0; first < schedule.ranges.size();) {
    const size_t end = first + NumAlike(schedule, first);
    const uint64_t num_rows = RowsPerGroup(schedule, schedule.ranges[first],
                                           num_runs, nests, max_bytes);
    while (num_rows > 0 && end - first >= kMinRows) {
      const uint64_t count = std::min<uint64_t>(num_rows, end - first);
      groups.push_back({.first_range = static_cast<uint32_t>(first),
                        .num_ranges = static_cast<uint32_t>(count)});
      first += count;
    }
    first = end;
  }
  return groups;
}

}  // namespace dcp
