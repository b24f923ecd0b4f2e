// SPDX-License-Identifier: Apache-2.0
// Diff: do two checkpoints, in any formats, hold the same tensors and values?
// Compares them by name, bit by bit or with a tolerance, and reports how far
// different values are apart. Two safetensors checkpoints are also compared by
// their metadata, as values named "__metadata__.KEY"; an absent "format" counts
// as "pt". Blocking; any thread.
#ifndef DCP_CHECKPOINT_DIFF_DIFF_H_
#define DCP_CHECKPOINT_DIFF_DIFF_H_

#include <cstdint>
#include <optional>
#include <stop_token>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/diff/diff_report.h"
#include "dcp/checkpoint/mapped/selection.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"
#include "dcp/tensor/element.h"

namespace dcp {

struct DiffOptions {
  OpenOptions open;              // A
  OpenOptions open_b;            // B
  SelectionOptions selection_a;  // include, exclude and rename; casts too
  SelectionOptions selection_b;
  bool tensors_only = false;  // do not compare objects
  // How far tensors' elements may differ. Without it, they must be equal bit
  // for bit. InvalidArgument when a number in it is negative, NaN or infinite.
  std::optional<Tolerance> tolerance = {};
  uint64_t memory_bytes = kDefaultMemoryBytes;
  std::stop_token stop;
  TransferStats* stats = nullptr;
  absl::AnyInvocable<void(uint64_t bytes)> on_plan;
};

absl::StatusOr<DiffReport> DiffCheckpoints(FileSystem& fs, absl::string_view a,
                                           absl::string_view b,
                                           DiffOptions options);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIFF_DIFF_H_
