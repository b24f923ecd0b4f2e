// A .pt file: one torch.save archive of the nested state dict. Pure.
#ifndef DCP_CHECKPOINT_TORCH_OUTPUT_H_
#define DCP_CHECKPOINT_TORCH_OUTPUT_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/output.h"

namespace dcp {

// `file_name` gives the archive's first directory, as torch.save takes it.
// Tensors that are one stored tensor under several names share a storage.
absl::StatusOr<Output> BuildTorchOutput(absl::Span<const OutputEntry> entries,
                                        SourceFiles& files,
                                        absl::string_view file_name);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_TORCH_OUTPUT_H_
