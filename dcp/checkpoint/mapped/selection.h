// SPDX-License-Identifier: Apache-2.0
// The entries in a checkpoint that an operation processes, with names and
// types: include, exclude, renames, casts. Pure.
#ifndef DCP_CHECKPOINT_MAPPED_SELECTION_H_
#define DCP_CHECKPOINT_MAPPED_SELECTION_H_

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/checkpoint/files/state_part.h"
#include "dcp/tensor/dtype.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

// Globs as in glob_set.h.
struct SelectionOptions {
  // Only these parts of the state; empty: all. For exactly one part, names lose
  // the elements that only name the part, before they are renamed: model.w
  // becomes w. InvalidArgument if it is not known which keys are the parts.
  std::vector<StatePart> parts;
  // Removes wrappers' names such as _fsdp_wrapped_module from names, as in
  // wrapper_names.h, before they are renamed.
  bool strip_wrappers = false;
  std::vector<std::string> include;  // empty: everything
  std::vector<std::string> exclude;
  // "s/pattern/replacement/" with RE2 syntax, \1 for groups, flag g; applied
  // in order to the whole name.
  std::vector<std::string> renames;
  // "bf16", or "GLOB=bf16"; the last match wins. Only for floating-point
  // tensors.
  std::vector<std::string> casts;
  // Whether patterns may match nothing, because one of two compared checkpoints
  // may lack names that the other has.
  bool allow_unmatched = false;
};

struct SelectedEntry {
  uint32_t entry;  // index in the checkpoint
  std::string fqn;
  StatePath path;
  DType dtype = DType::kFloat32;  // for a tensor, after the cast
};

// "bf16", "bfloat16", "fp16", "float32", "float8_e4m3fn", ..., in any case and
// also behind "torch.".
absl::StatusOr<DType> ParseDType(absl::string_view name);

// InvalidArgument for malformed options, a pattern, rename or cast that matches
// nothing, and names that collide after stripping or renaming. Cancelled soon
// after a stop.
absl::StatusOr<std::vector<SelectedEntry>> Select(
    absl::Span<const CheckpointEntry> entries, const SelectionOptions& options,
    std::stop_token stop = {});

}  // namespace dcp

#endif  // DCP_CHECKPOINT_MAPPED_SELECTION_H_
