// SPDX-License-Identifier: Apache-2.0
// StageAndTransfer: writes tensors in memory to one file, for a trainer that
// waits only until they are copied. As much as the memory holds is copied
// before the file is even created. Blocking; any thread.
#ifndef DCP_CHECKPOINT_WRITE_STAGED_TRANSFER_H_
#define DCP_CHECKPOINT_WRITE_STAGED_TRANSFER_H_

#include <cstdint>
#include <stop_token>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/io/block_pool.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"

namespace dcp {

// The functions that the transfer calls at certain points. An error from either
// ends it; none is called after an error.
struct StagingSteps {
  // Called once, when every payload has been copied and every source flushed,
  // possibly before anything is written.
  absl::FunctionRef<absl::Status()> on_staged;
  // Called once, before the file is created; returns the destination. Until
  // then the file may be renamed. If all payloads fit into memory, it is called
  // after on_staged, otherwise before.
  absl::FunctionRef<absl::StatusOr<Destination*>()> open;
};

struct StagedTransferOptions {
  DirectMode direct = DirectMode::kAuto;
  uint64_t memory_bytes = 0;
  uint64_t block_bytes = kBlockBytes;
  BlockPool* pool = nullptr;  // replaces these two
  uint64_t max_rate = 0;      // writing, in bytes a second; 0: no limit
  std::stop_token stop = {};
};

// Writes the only file in `output`. Every payload must have a source. The file
// is then durable; the caller commits it. Returns the digests of the payloads
// if the output needs them. The sources are flushed in any case.
absl::StatusOr<std::vector<ChunkDigest>> StageAndTransfer(
    FileSystem& fs, Output& output, const StagingSteps& steps,
    const StagedTransferOptions& options, TransferStats& stats);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_WRITE_STAGED_TRANSFER_H_
