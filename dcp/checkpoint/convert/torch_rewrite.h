// SPDX-License-Identifier: Apache-2.0
// Builds a .pt file from another one. The pickle keeps the containers, keys,
// attributes and shared parts, except for those that a selection leaves out,
// renames or casts. Pure.
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
// from it; `selection` decides which empty containers are. If all tensors in a
// storage are taken unchanged, it is copied whole, with everything that views
// it; otherwise each tensor gets a copy of the elements. Unimplemented when an
// object refers to one that is left out.
absl::StatusOr<Output> RewriteTorchFile(Checkpoint& source,
                                        absl::Span<const OutputEntry> entries,
                                        const SelectionOptions& selection,
                                        absl::string_view file_name);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_TORCH_REWRITE_H_
