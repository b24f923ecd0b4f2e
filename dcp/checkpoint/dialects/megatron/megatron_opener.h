// SPDX-License-Identifier: Apache-2.0
// Opens a Megatron-core (torch_dist) or NeMo 2 checkpoint: a DCP directory with
// an index that needs interpretation. Any thread.
#ifndef DCP_CHECKPOINT_DIALECTS_MEGATRON_MEGATRON_OPENER_H_
#define DCP_CHECKPOINT_DIALECTS_MEGATRON_MEGATRON_OPENER_H_

#include <optional>
#include <stop_token>

#include "absl/status/statusor.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/files/open_options.h"

namespace dcp {

// nullopt if `directory` is not one. The names are those that Megatron-core
// stores, and common.* for state that is not sharded; `options` can change
// some. Errors are those from Checkpoint::Open.
absl::StatusOr<std::optional<CheckpointParts>> TryOpenMegatron(
    const SourceDirectory& directory, const OpenOptions& options,
    const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_MEGATRON_MEGATRON_OPENER_H_
