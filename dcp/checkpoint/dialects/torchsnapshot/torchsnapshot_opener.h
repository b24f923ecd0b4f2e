// SPDX-License-Identifier: Apache-2.0
// Opens a TorchSnapshot directory: .snapshot_metadata lists the file and bytes
// for each rank's values, mostly bare elements in files that many tensors
// share. Any thread.
#ifndef DCP_CHECKPOINT_DIALECTS_TORCHSNAPSHOT_TORCHSNAPSHOT_OPENER_H_
#define DCP_CHECKPOINT_DIALECTS_TORCHSNAPSHOT_TORCHSNAPSHOT_OPENER_H_

#include <optional>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/files/open_options.h"

namespace dcp {

// All ranks' values as one checkpoint, under their names in the app state; a
// value that is neither sharded nor replicated and differs from an earlier
// rank's is called NAME@RANK. Nullopt without .snapshot_metadata. DataLoss,
// with the name, if the manifest is malformed, byte ranges are not in their
// files, or pieces do not cover a tensor; NotFound if a file is missing.
// Quantized tensors become objects that can only be listed. Cancelled once
// `stop` is requested.
absl::StatusOr<std::optional<CheckpointParts>> TryOpenTorchSnapshot(
    const SourceDirectory& directory, const OpenOptions& options,
    const std::stop_token& stop = {});

// NotFound if the directory has TorchSnapshot's folders but not the file that
// is written last.
absl::Status CheckSnapshotFinished(const SourceDirectory& directory,
                                   const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_TORCHSNAPSHOT_TORCHSNAPSHOT_OPENER_H_
