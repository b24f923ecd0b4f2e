// The digests that a save or a conversion by this library recorded for an
// opened checkpoint: in a file next to it, or in the headers of safetensors
// files. Blocking; any thread.
#ifndef DCP_CHECKPOINT_OPEN_RECORDED_DIGESTS_H_
#define DCP_CHECKPOINT_OPEN_RECORDED_DIGESTS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Empty if none were recorded for this save. If both places have some, those in
// the file count. DataLoss when the file is malformed.
absl::StatusOr<std::vector<ChunkDigest>> ReadRecordedDigests(
    FileSystem& fs, const Checkpoint& checkpoint);

// DataLoss, with the file as its place, when the .metadata of `checkpoint` does
// not have the digest that the save recorded: then names, shapes and places may
// be wrong. Also when the digests are malformed.
absl::Status CheckRecordedIndex(FileSystem& fs, const Checkpoint& checkpoint);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OPEN_RECORDED_DIGESTS_H_
