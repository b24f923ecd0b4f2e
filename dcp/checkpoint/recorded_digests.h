// The digests that lie beside an opened checkpoint, if a save or a conversion
// of this library left any. Blocking; any thread.
#ifndef DCP_CHECKPOINT_RECORDED_DIGESTS_H_
#define DCP_CHECKPOINT_RECORDED_DIGESTS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "dcp/checkpoint/checkpoint.h"
#include "dcp/checkpoint/digests.h"
#include "dcp/io/file_system.h"

namespace dcp {

// None where no file of digests belongs to this save. DataLoss when the file
// is malformed.
absl::StatusOr<std::vector<ChunkDigest>> ReadRecordedDigests(
    FileSystem& fs, const Checkpoint& checkpoint);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_RECORDED_DIGESTS_H_
