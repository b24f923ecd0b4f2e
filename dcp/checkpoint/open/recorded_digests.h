// SPDX-License-Identifier: Apache-2.0
// The digests that a save or a conversion by this library recorded for a
// checkpoint: in a file next to it, or in the headers of safetensors
// files. Blocking; any thread.
#ifndef DCP_CHECKPOINT_OPEN_RECORDED_DIGESTS_H_
#define DCP_CHECKPOINT_OPEN_RECORDED_DIGESTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/io/file_system.h"

namespace dcp {

// The digests for the checkpoint at `path`: from the digest files, and from
// headers for stretches that no digest file has. Empty if none were recorded
// for this save. DataLoss when a file is malformed.
absl::StatusOr<std::vector<ChunkDigest>> ReadRecordedDigests(
    FileSystem& fs, const std::string& path, const CheckpointParts& parts);

// DataLoss, with the file as the place, if a .metadata in the checkpoint
// differs from the digest that the save recorded: then names, shapes and places
// may be wrong. Also DataLoss when the digests are malformed.
absl::Status CheckRecordedIndex(FileSystem& fs, const std::string& path,
                                const CheckpointParts& parts);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OPEN_RECORDED_DIGESTS_H_
