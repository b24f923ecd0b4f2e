// SPDX-License-Identifier: Apache-2.0
// Builds a .pt file from another one: the pickle keeps its containers, keys,
// attributes and shared parts, except for what a selection leaves out, renames
// or casts. Pure.
#ifndef DCP_CHECKPOINT_CONVERT_TORCH_REWRITE_H_
#define DCP_CHECKPOINT_CONVERT_TORCH_REWRITE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/mapped/selection.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/output/output.h"

namespace dcp {

// `source` is a .pt file and must outlive the transfer. `entries` are taken
// from it; `selection` decides which of its empty containers are. A storage
// whose tensors are all taken unchanged is copied whole, with everything that
// views it; in other cases, each tensor gets its own elements. Unimplemented
// when an object refers to one that is left out.
absl::StatusOr<Output> RewriteTorchFile(Checkpoint& source,
                                        absl::Span<const OutputEntry> entries,
                                        const SelectionOptions& selection,
                                        absl::string_view file_name);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_TORCH_REWRITE_H_
