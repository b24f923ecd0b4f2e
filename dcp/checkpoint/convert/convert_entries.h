// SPDX-License-Identifier: Apache-2.0
// ConvertEntries: the selected values of a source that the output holds, and
// those that it cannot hold. Pure; any thread.
#ifndef DCP_CHECKPOINT_CONVERT_CONVERT_ENTRIES_H_
#define DCP_CHECKPOINT_CONVERT_CONVERT_ENTRIES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/convert/convert_options.h"
#include "dcp/checkpoint/convert/convert_plan.h"
#include "dcp/checkpoint/mapped/selection.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/output/output.h"

namespace dcp {

// The source's entries, by index, that must be located to convert `selected` to
// the format `to`.
std::vector<uint32_t> EntriesToLocate(const Checkpoint& source,
                                      absl::Span<const SelectedEntry> selected,
                                      Format to);

// The values for an output in the format plan.to, which are located. Counts
// them in `plan`, and names there the values that are left out.
// FailedPrecondition when the options do not allow leaving one out, or when no
// tensor is left; for an object that could not be read, that error.
absl::StatusOr<std::vector<OutputEntry>> ConvertEntries(
    const Checkpoint& source, absl::Span<const SelectedEntry> selected,
    const ConvertOptions& options, ConvertPlan& plan);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_CONVERT_ENTRIES_H_
