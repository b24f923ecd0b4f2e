// SPDX-License-Identifier: Apache-2.0
// Describes the mapping in the plan of a conversion, rule by rule. One thread;
// nothing is read.
#ifndef DCP_CHECKPOINT_CONVERT_MAP_PLAN_H_
#define DCP_CHECKPOINT_CONVERT_MAP_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/checkpoint/convert/convert_plan.h"
#include "dcp/checkpoint/files/map_spec.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/checkpoint/mapped/mapped_entries.h"
#include "dcp/io/pipeline.h"

namespace dcp {

// The report of `spec`'s mapping when a checkpoint was opened through it.
PlannedMap PlanMap(const MapSpec& spec, const MappedTensors& report);

// How often the tensors that the rules take are read, according to a transfer's
// schedule.
class RuleReads {
 public:
  // For the located sources of `mapped`, in `files`; both must outlive this.
  // Errors are those of opening a file.
  static absl::StatusOr<RuleReads> Make(const MappedEntries& mapped,
                                        SourceFiles& files);

  void Add(const PlannedRead& read);

  // Sets the ratios in `map`, which was planned from the same entries.
  void SetRatios(PlannedMap& map) const;

 private:
  // A source's chunk in a file.
  struct Stretch {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t reach = 0;  // the last end among all stretches up to this one
    size_t source = 0;
  };
  // A source's bytes, stored and read.
  struct Count {
    uint64_t num_stored = 0;
    uint64_t num_read = 0;
  };

  explicit RuleReads(const MappedEntries& mapped)
      : mapped_(&mapped), counts_(mapped.report.num_sources) {}

  absl::Status AddSource(size_t source, SourceFiles& files);
  void Sort();

  const MappedEntries* mapped_;
  std::vector<Count> counts_;  // by source
  // Sorted by begin.
  absl::flat_hash_map<FileHandle, std::vector<Stretch>> stretches_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_MAP_PLAN_H_
