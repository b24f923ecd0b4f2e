// SPDX-License-Identifier: Apache-2.0
// [Note: rows] A batch needs a stripe from a large transposed matrix: a short
// range in each row. Each element of a row goes to another cache line, and
// often to the same few cache sets, since the bytes in a destination row are a
// power of two. Put in place one by one, they took 4 of the 7 s of processor
// time that a conversion used for a GB, because each line was fetched and
// written back for each of its 32 elements. So rows are collected, as they are
// read, and a group's rows are transposed together; the conversion uses 0.6 s.
//
// Reads are submitted in order and only some are in flight, so few groups are
// open at once. If many are nevertheless, because one read is late, the other
// groups' rows are put in place one by one.
//
// Tested by tests/dcp/checkpoint/read/window_planner_test.cc.
#include "dcp/checkpoint/read/window_scatter.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dcp/base/check.h"
#include "dcp/tensor/strided_copy.h"

namespace dcp {
namespace {

// The memory for rows is not part of the pool, so it is small. A group fits
// into a processor's cache.
constexpr uint64_t kMaxGroupBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxGroups = 4;

// The end of the last element that `run` writes, in the destination.
uint64_t DestinationEnd(const NestRun& run) {
  uint64_t end = run.dst + run.unit * run.dst_element_bytes;
  for (const CopyLoop& loop : run.loops) {
    end += (loop.count - 1) * loop.dst_stride;
  }
  return end;
}

}  // namespace

void WindowScatter::Schedule(const ReadLimits& limits) {
  schedule_ = ScheduleReads(runs, nests, limits);
  for (const ReadGroup& reads :
       GroupReads(schedule_, runs.size(), nests, kMaxGroupBytes)) {
    groups_.push_back({.reads = reads, .num_done = 0, .rows = nullptr});
  }
}

void WindowScatter::Scatter(size_t range, ByteSpan data) {
  Group* const group = FindGroup(range);
  if (group == nullptr) return ScatterRuns(ranges()[range], data);
  if (group->num_done == 0 && num_collected_ < kMaxGroups) {
    const FileRows rows = GroupRows(group->reads, schedule_);
    group->rows =
        std::make_unique_for_overwrite<uint8_t[]>(rows.count * rows.pitch);
    ++num_collected_;
  }
  ++group->num_done;
  if (group->rows == nullptr) return ScatterRuns(ranges()[range], data);
  Collect(*group, range, data);
}

// The group that has a range; null if none has.
WindowScatter::Group* WindowScatter::FindGroup(size_t range) {
  auto after = std::upper_bound(groups_.begin(), groups_.end(), range,
                                [](size_t number, const Group& group) {
                                  return number < group.reads.first_range;
                                });
  if (after == groups_.begin()) return nullptr;
  Group& group = *std::prev(after);
  const bool has = range - group.reads.first_range < group.reads.num_ranges;
  return has ? &group : nullptr;
}

// Adds a row; the last row puts all in place.
void WindowScatter::Collect(Group& group, size_t range, ByteSpan data) {
  const FileRows rows = GroupRows(group.reads, schedule_);
  DCP_CHECK(data.size() <= rows.pitch, "a read of ", data.size(),
            " bytes, rows of ", rows.pitch);
  std::memcpy(group.rows.get() + (range - group.reads.first_range) * rows.pitch,
              data.data(), data.size());
  if (group.num_done < group.reads.num_ranges) return;
  const ReadRange& first = ranges()[group.reads.first_range];
  const ByteSpan all(group.rows.get(), rows.count * rows.pitch);
  for (uint32_t i = 0; i < first.num_runs; ++i) {
    const NestRun& run =
        nests[schedule_.run_indices[first.first_run + i] - runs.size()];
    ApplyRun(run, rows, all, [&](const NestRun& part, const uint8_t* src) {
      ScatterNest(part, src);
    });
  }
  group.rows = nullptr;
  --num_collected_;
}

void WindowScatter::ScatterRuns(const ReadRange& range, ByteSpan data) const {
  for (uint32_t i = 0; i < range.num_runs; ++i) {
    const uint32_t number = schedule_.run_indices[range.first_run + i];
    if (number >= runs.size()) {
      const NestRun& run = nests[number - runs.size()];
      ApplyRun(run, range.offset, range.length, data,
               [&](const NestRun& part, const uint8_t* src) {
                 ScatterNest(part, src);
               });
      continue;
    }
    const CopyRun& run = runs[number];
    const WindowDestination& to = destinations[run.tag];
    uint8_t* const memory = to.memory.front().dst;
    if (to.transform.is_copy()) {
      ApplyRun(run, range.offset, range.length, data,
               [&](const uint8_t* src, uint64_t dst, uint64_t n) {
                 std::memcpy(memory + dst, src, n * run.dst_element_bytes);
               });
    } else {
      ApplyRun(run, range.offset, range.length, data,
               [&](const uint8_t* src, uint64_t dst, uint64_t n) {
                 TransformElements(to.transform, src, memory + dst, n,
                                   to.num_beyond);
               });
    }
  }
}

// Puts a part of a nest, with the source at `src`, into each stretch of the
// destination.
void WindowScatter::ScatterNest(const NestRun& part, const uint8_t* src) const {
  const WindowDestination& to = destinations[part.tag];
  const auto copy = [&](const NestRun& in_stretch,
                        const WindowStretch& stretch) {
    const CopyEnds ends{src + (in_stretch.src - part.src),
                        stretch.dst + (in_stretch.dst - stretch.begin)};
    if (to.transform.is_copy()) {
      CopyStrided(ends, in_stretch.unit * in_stretch.dst_element_bytes,
                  in_stretch.loops);
    } else {
      TransformStrided(to.transform, ends, in_stretch.unit, in_stretch.loops,
                       to.num_beyond);
    }
  };
  if (to.memory.size() == 1) return copy(part, to.memory.front());
  const uint64_t end = DestinationEnd(part);
  for (size_t i = 0; i < to.memory.size(); ++i) {
    const WindowStretch& stretch = to.memory[i];
    const uint64_t next =
        i + 1 < to.memory.size() ? to.memory[i + 1].begin : end;
    if (next <= part.dst || stretch.begin >= end) continue;
    CutByDestination(part, stretch.begin, next, [&](const NestRun& in_stretch) {
      copy(in_stretch, stretch);
    });
  }
}

}  // namespace dcp
