// SPDX-License-Identifier: Apache-2.0
// PrefixTotals: tensors counted by the beginnings of their names, for
// checkpoints with more tensors than anyone reads line by line. Pure; any
// thread.
#ifndef TOOLS_DCP_CONVERT_OUTPUT_PREFIX_TOTALS_H_
#define TOOLS_DCP_CONVERT_OUTPUT_PREFIX_TOTALS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "dcp/checkpoint/open/checkpoint.h"

namespace dcp::tools {

struct PrefixTotal {
  // "model.layers.0.*": a name's first components, separated by dots, and a
  // star for the rest. A name without a rest is shown as it is.
  std::string prefix;
  uint64_t num_tensors = 0;
  // These saturate.
  uint64_t num_elements = 0;
  uint64_t num_bytes = 0;
};

// One total for each beginning that has `depth` components (at least one), in
// the order in which the beginnings first appear. All entries must be tensors.
std::vector<PrefixTotal> TotalsByPrefix(
    absl::Span<const CheckpointEntry* const> tensors, size_t depth);

// The largest depth that gives at most `max_rows` totals; 1 if none does.
size_t DepthForRows(absl::Span<const CheckpointEntry* const> tensors,
                    size_t max_rows);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OUTPUT_PREFIX_TOTALS_H_
