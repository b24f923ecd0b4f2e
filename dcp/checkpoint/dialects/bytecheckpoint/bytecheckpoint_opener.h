// SPDX-License-Identifier: Apache-2.0
// Opens a ByteCheckpoint checkpoint: folders model/ and optimizer/, each with
// an index like DCP's and bare storages as items, and extra_state/ with a
// torch.save file from each rank. Any thread. Source:
// bytecheckpoint/checkpointer, engine/store_engine.py (0.0.2).
#ifndef DCP_CHECKPOINT_DIALECTS_BYTECHECKPOINT_BYTECHECKPOINT_OPENER_H_
#define DCP_CHECKPOINT_DIALECTS_BYTECHECKPOINT_BYTECHECKPOINT_OPENER_H_

#include <optional>
#include <stop_token>

#include "absl/status/statusor.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/files/open_options.h"

namespace dcp {

// The checkpoint under the names that PyTorch gives to {"model": ...,
// "optimizer": ..., "extra": ...}; nullopt unless model/.metadata is a
// ByteCheckpoint index. FSDP1's flat parameters are resolved as the index
// records; the optimizer's state for them is not recorded and stays flat, with
// a property "warning". DataLoss, with file and name, if an index is malformed
// or its ranges are not in their files; NotFound when files are missing.
// Cancelled once `stop` is requested, but parsing a pickle is not interrupted.
absl::StatusOr<std::optional<CheckpointParts>> TryOpenByteCheckpoint(
    const SourceDirectory& directory, const OpenOptions& options,
    const std::stop_token& stop = {});

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_BYTECHECKPOINT_BYTECHECKPOINT_OPENER_H_
