// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/read_schedule.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <tuple>

#include "dcp/base/check.h"

namespace dcp {
namespace {

// Bytes [begin, end) in a file, which `run` needs.
struct Extent {
  uint32_t file;
  uint32_t run;
  uint64_t begin;
  uint64_t end;
};

bool ComesBefore(const Extent& a, const Extent& b) {
  return std::tie(a.file, a.begin, a.run) < std::tie(b.file, b.begin, b.run);
}

// The input to a schedule: runs, numbered from 0, and nests, numbered after
// them.
struct Runs {
  absl::Span<const CopyRun> runs;
  absl::Span<const NestRun> nests;

  size_t size() const { return runs.size() + nests.size(); }
  bool HasElementIn(uint32_t run, uint64_t offset, uint64_t length) const {
    return run < runs.size()
               ? dcp::HasElementIn(runs[run], offset, length)
               : dcp::HasElementIn(nests[run - runs.size()], offset, length);
  }
};

// Appends a run's extents: one per unit if reading the gaps between units would
// cost more than separate requests.
void AppendExtents(const CopyRun& run, uint32_t index, uint64_t gap_bytes,
                   std::vector<Extent>& extents) {
  const uint64_t length = SourceExtent(run);
  if (length == 0) return;
  const uint64_t unit_bytes = run.unit * run.src_element_bytes;
  if (run.count == 1 || run.src_stride <= unit_bytes + gap_bytes) {
    extents.push_back({run.file, index, run.src, run.src + length});
    return;
  }
  for (uint64_t u = 0; u < run.count; ++u) {
    const uint64_t begin = run.src + u * run.src_stride;
    extents.push_back({run.file, index, begin, begin + unit_bytes});
  }
}

// All runs' extents, sorted.
std::vector<Extent> SortedExtents(const Runs& runs, uint64_t gap_bytes) {
  uint64_t num_nest_extents = 0;
  for (const NestRun& run : runs.nests) {
    num_nest_extents += NumExtents(run, gap_bytes);
  }
  std::vector<Extent> extents;
  extents.reserve(runs.runs.size() + num_nest_extents);
  uint32_t index = 0;
  for (const CopyRun& run : runs.runs) {
    AppendExtents(run, index++, gap_bytes, extents);
  }
  for (const NestRun& run : runs.nests) {
    ForEachExtent(run, gap_bytes, [&](uint64_t begin, uint64_t end) {
      extents.push_back({run.file, index, begin, end});
    });
    ++index;
  }
  if (!std::is_sorted(extents.begin(), extents.end(), ComesBefore)) {
    std::sort(extents.begin(), extents.end(), ComesBefore);
  }
  return extents;
}

// Builds a schedule's ranges from left to right.
class RangeBuilder {
 public:
  RangeBuilder(const Runs& runs, uint64_t max_bytes)
      : runs_(runs),
        max_bytes_(max_bytes),
        last_listed_(runs.size(), std::numeric_limits<uint32_t>::max()) {}

  // Covers the extents with ranges of max_bytes and a last one for the rest.
  // The extents belong to one file, are sorted, and have no gap that is worth
  // skipping.
  void AddGroup(absl::Span<const Extent> group, uint64_t end) {
    open_.clear();
    size_t next = 0;
    for (uint64_t begin = group[0].begin; begin < end;) {
      const uint64_t length = std::min(max_bytes_, end - begin);
      const uint64_t range_end = begin + length;
      while (next < group.size() && group[next].begin < range_end) {
        open_.push_back(group[next++]);
      }
      AddRange(group[0].file, begin, length);
      open_.erase(std::remove_if(open_.begin(), open_.end(),
                                 [&](const Extent& extent) {
                                   return extent.end <= range_end;
                                 }),
                  open_.end());
      begin = range_end;
    }
  }

  ReadSchedule Finish() && { return std::move(schedule_); }

 private:
  // Adds the range with the runs that have an element beginning in it, among
  // the open extents. If there are none, the range is left out: it would hold
  // only the end of an element, which lies in the margin of the range before.
  void AddRange(uint32_t file, uint64_t begin, uint64_t length) {
    const auto range_index = static_cast<uint32_t>(schedule_.ranges.size());
    const size_t first_run = schedule_.run_indices.size();
    for (const Extent& extent : open_) {
      if (last_listed_[extent.run] == range_index ||
          !runs_.HasElementIn(extent.run, begin, length)) {
        continue;
      }
      last_listed_[extent.run] = range_index;
      schedule_.run_indices.push_back(extent.run);
    }
    const size_t num_runs = schedule_.run_indices.size() - first_run;
    if (num_runs == 0) return;
    DCP_CHECK(
        schedule_.run_indices.size() <= std::numeric_limits<uint32_t>::max(),
        "too many runs for one schedule");
    schedule_.ranges.push_back({.file = file,
                                .offset = begin,
                                .length = length,
                                .first_run = static_cast<uint32_t>(first_run),
                                .num_runs = static_cast<uint32_t>(num_runs)});
  }

  const Runs runs_;
  const uint64_t max_bytes_;
  ReadSchedule schedule_;
  std::vector<Extent> open_;  // extents that reach into the next range
  // For each run, the last range that lists it: a run with many extents is
  // listed only once in each range.
  std::vector<uint32_t> last_listed_;
};

}  // namespace

ReadSchedule ScheduleReads(absl::Span<const CopyRun> runs,
                           const ReadLimits& limits) {
  return ScheduleReads(runs, {}, limits);
}

ReadSchedule ScheduleReads(absl::Span<const CopyRun> copies,
                           absl::Span<const NestRun> nests,
                           const ReadLimits& limits) {
  const Runs runs{copies, nests};
  DCP_CHECK(limits.max_bytes > 0, "ranges without bytes");
  DCP_CHECK(runs.size() < std::numeric_limits<uint32_t>::max(), runs.size(),
            " runs");
  const std::vector<Extent> extents = SortedExtents(runs, limits.gap_bytes);
  RangeBuilder builder(runs, limits.max_bytes);
  for (size_t first = 0; first < extents.size();) {
    uint64_t end = extents[first].end;
    size_t last = first + 1;
    while (last < extents.size() && extents[last].file == extents[first].file &&
           (extents[last].begin <= end ||
            extents[last].begin - end <= limits.gap_bytes)) {
      end = std::max(end, extents[last].end);
      ++last;
    }
    builder.AddGroup(absl::MakeConstSpan(extents).subspan(first, last - first),
                     end);
    first = last;
  }
  return std::move(builder).Finish();
}

}  // namespace dcp
