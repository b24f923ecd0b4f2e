// SPDX-License-Identifier: Apache-2.0
// WindowScatter: puts the elements from a batch's reads into the windows. The
// planner (window_planner.h) makes one for each batch. Used by one thread.
#ifndef DCP_CHECKPOINT_READ_WINDOW_SCATTER_H_
#define DCP_CHECKPOINT_READ_WINDOW_SCATTER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "dcp/base/bytes.h"
#include "dcp/plan/read_groups.h"
#include "dcp/plan/read_schedule.h"
#include "dcp/plan/strided/copy_run.h"
#include "dcp/plan/strided/nest_run.h"
#include "dcp/tensor/element.h"

namespace dcp {

// Where a window's bytes from `begin` on are, up to the next stretch.
struct WindowStretch {
  uint64_t begin;
  uint8_t* dst;

  friend bool operator==(const WindowStretch&, const WindowStretch&) = default;
};

// Where a window's elements go, and how they are converted.
struct WindowDestination {
  // In rising order of `begin`, which is 0 for the first. A window with runs
  // that do not form a nest has exactly one stretch.
  absl::InlinedVector<WindowStretch, 1> memory;
  ElementTransform transform;
  uint64_t* num_beyond;  // optional: see TransformElements

  friend bool operator==(const WindowDestination&,
                         const WindowDestination&) = default;
};

class WindowScatter {
 public:
  // A run's tag is an index into the destinations.
  std::vector<WindowDestination> destinations;
  std::vector<CopyRun> runs;
  std::vector<NestRun> nests;  // numbered after the runs

  // Decides which ranges are read. Call it once; then the vectors do not
  // change.
  void Schedule(const ReadLimits& limits);
  const std::vector<ReadRange>& ranges() const { return schedule_.ranges; }

  // Puts the elements from a range in place, or keeps them until the group's
  // other ranges are there. `data` comes from Batch::on_read.
  void Scatter(size_t range, ByteSpan data);

 private:
  // See [Note: rows] in the source file.
  struct Group {
    ReadGroup reads;
    uint32_t num_done = 0;
    std::unique_ptr<uint8_t[]> rows;  // null: they are not collected
  };

  Group* FindGroup(size_t range);
  void Collect(Group& group, size_t range, ByteSpan data);
  void ScatterRuns(const ReadRange& range, ByteSpan data) const;
  void ScatterNest(const NestRun& part, const uint8_t* src) const;

  ReadSchedule schedule_;
  std::vector<Group> groups_;
  uint64_t num_collected_ = 0;  // groups
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_READ_WINDOW_SCATTER_H_
