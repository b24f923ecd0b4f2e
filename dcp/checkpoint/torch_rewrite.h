// A .pt file made of another one: the pickle stays as it was, with its
// containers, keys, attributes and shared parts, but for what a selection
// leaves out, renames or casts. Pure.
#ifndef DCP_CHECKPOINT_TORCH_REWRITE_H_
#define DCP_CHECKPOINT_TORCH_REWRITE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/checkpoint.h"
#include "dcp/checkpoint/output.h"
#include "dcp/checkpoint/selection.h"

namespace dcp {

// `source` is a .pt file and outlives the transfer; `entries` are what is taken
// of it, and `selection` says which of its empty containers are. A storage
// whose tensors are all taken as they are is copied whole, with all that views
// it; of others, each tensor gets elements of its own. Unimplemented when an
// object refers to one that is left out.
absl::StatusOr<Output> RewriteTorchFile(Checkpoint& source,
                                        absl::Span<const OutputEntry> entries,
                                        const SelectionOptions& selection,
                                        absl::string_view file_name);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_TORCH_REWRITE_H_
