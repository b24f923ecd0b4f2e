// Carries out an Output: creates its files, streams their images through the
// pipeline block by block, with checksums and digests on the way, and syncs
// them. What is written becomes a checkpoint only by the commit that follows.
#ifndef DCP_CHECKPOINT_IMAGE_TRANSFER_H_
#define DCP_CHECKPOINT_IMAGE_TRANSFER_H_

#include <cstdint>
#include <stop_token>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/byte_stream.h"
#include "dcp/checkpoint/commit.h"
#include "dcp/checkpoint/convert_log.h"
#include "dcp/checkpoint/digests.h"
#include "dcp/checkpoint/output.h"
#include "dcp/checkpoint/source_check.h"
#include "dcp/io/block_pool.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"

namespace dcp {

// For a transfer that others go on with after a kill.
struct TransferSteps {
  // Files that are complete already, by their number in the output; empty:
  // none.
  std::vector<bool> kept;
  // Called when a file is complete, synced and closed; one at a time.
  absl::AnyInvocable<absl::Status(uint32_t number, const LoggedRun::File& file)>
      on_file;
  // Files are completed when so much is written, not all at the end.
  uint64_t step_bytes = 0;
};

struct ImageTransferOptions {
  DirectMode direct = DirectMode::kAuto;
  uint32_t num_lanes = 1;
  uint64_t memory_bytes = 0;  // of all lanes
  BlockPool* pool = nullptr;  // instead of memory_bytes; then one lane
  std::stop_token stop = {};
  TransferSteps* steps = nullptr;  // optional
  // Sees what is read, of one checkpoint; optional.
  SourceCheck* check = nullptr;
  // Gets, for each payload of the output, how many elements its cast found
  // beyond the range (see TransformElements); sized by the caller; optional.
  std::vector<uint64_t>* num_beyond = nullptr;
  // Fails with FailedPrecondition where there is one, before the file that
  // holds it is complete.
  bool strict_cast = false;
};

// The lanes that are worth having for `output`: a file is written by one.
uint32_t UsefulLanes(const Output& output);

// Writes all files of `output` that are not kept to `destination`, which has
// begun. Returns the digests of their payloads if the output wants them.
// Blocking.
absl::StatusOr<std::vector<ChunkDigest>> TransferImages(
    FileSystem& fs, Output& output, Destination& destination,
    const ImageTransferOptions& options, TransferStats& stats);

// How many bytes TransferImages would read: plans all of it, reads and writes
// nothing. The check of the options is told what it would see, and of no use
// afterwards.
absl::StatusOr<uint64_t> PlanTransfer(FileSystem& fs, Output& output,
                                      const ImageTransferOptions& options);

// As TransferImages, for an output of one file, which goes to `stream` in its
// order, and on no disk. On one lane; `steps` are none.
absl::Status StreamImage(FileSystem& fs, Output& output, ByteStream& stream,
                         const ImageTransferOptions& options,
                         TransferStats& stats);

// When a transfer from memory needs to know what.
struct StagingSteps {
  // Called once, when every payload has been copied and its source flushed;
  // by then nothing may be written yet.
  absl::FunctionRef<absl::Status()> on_staged;
  // Called once, before the file is created, where it goes; until then the
  // file may be renamed. In a large pool that is after on_staged.
  absl::FunctionRef<absl::StatusOr<Destination*>()> open;
};

// As TransferImages, for an output of one file all of whose payloads have a
// source: copies as far as memory goes before it asks for the destination. An
// error of a step ends the transfer; a step is not called after an error. The
// sources are flushed in any case.
absl::StatusOr<std::vector<ChunkDigest>> StageAndTransfer(
    FileSystem& fs, Output& output, const StagingSteps& steps,
    const ImageTransferOptions& options, TransferStats& stats);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_IMAGE_TRANSFER_H_
