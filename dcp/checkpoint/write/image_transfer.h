// Carries out an Output: creates its files, streams their images through the
// pipeline block by block, computes checksums and digests on the way, and syncs
// the files. They become a checkpoint only by the commit that follows.
#ifndef DCP_CHECKPOINT_WRITE_IMAGE_TRANSFER_H_
#define DCP_CHECKPOINT_WRITE_IMAGE_TRANSFER_H_

#include <cstdint>
#include <stop_token>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/open/digests.h"
#include "dcp/checkpoint/read/source_check.h"
#include "dcp/checkpoint/write/byte_stream.h"
#include "dcp/checkpoint/write/destination.h"
#include "dcp/checkpoint/write/output.h"
#include "dcp/io/block_pool.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"

namespace dcp {

// How many elements of one payload a cast found beyond the range of the new
// type.
struct NumBeyond {
  uint32_t payload = 0;  // its number in the output
  uint64_t count = 0;

  friend bool operator==(const NumBeyond&, const NumBeyond&) = default;
};

// A file that is complete, synced and closed.
struct WrittenFile {
  std::vector<ChunkDigest> digests;   // of its payloads, if they are needed
  std::vector<NumBeyond> num_beyond;  // of its payloads
};

// For a transfer that a later run can resume after a kill.
struct TransferSteps {
  // Which files are already complete, by their number in the output; empty if
  // none is.
  std::vector<bool> kept;
  // Called when a file is complete, synced and closed; one call at a time.
  absl::AnyInvocable<absl::Status(uint32_t number, const WrittenFile& file)>
      on_file;
  // Files are completed each time this many bytes are written, not all at the
  // end.
  uint64_t step_bytes = 0;
};

struct ImageTransferOptions {
  DirectMode direct = DirectMode::kAuto;
  uint32_t num_lanes = 1;
  uint64_t memory_bytes = 0;  // for all lanes together
  BlockPool* pool = nullptr;  // replaces memory_bytes; requires one lane
  std::stop_token stop = {};
  TransferSteps* steps = nullptr;  // optional
  // Sees what is read from its checkpoint; optional.
  SourceCheck* check = nullptr;
  // Gets, for each payload of the output, the number of elements that its cast
  // found beyond the range (see TransformElements). The caller sets its size;
  // optional.
  std::vector<uint64_t>* num_beyond = nullptr;
  // Fails with FailedPrecondition if there is such an element, before the file
  // that holds it is complete.
  bool strict_cast = false;
};

// How many lanes are useful for `output`; a file is written by one lane.
uint32_t UsefulLanes(const Output& output);

// Writes all files of `output` that are not kept to `destination`, for which
// Begin was called. Returns the digests of their payloads if the output needs
// them. Blocking.
absl::StatusOr<std::vector<ChunkDigest>> TransferImages(
    FileSystem& fs, Output& output, Destination& destination,
    const ImageTransferOptions& options, TransferStats& stats);

// How many bytes TransferImages would read: plans everything, but reads and
// writes nothing. `options.check` is told what it would see and cannot check
// anything afterwards.
absl::StatusOr<uint64_t> PlanTransfer(FileSystem& fs, Output& output,
                                      const ImageTransferOptions& options);

// The same as TransferImages for an output of one file, but writes the file to
// `stream`, in order, and not to a disk. Uses one lane; `options.steps` must be
// null.
absl::Status StreamImage(FileSystem& fs, Output& output, ByteStream& stream,
                         const ImageTransferOptions& options,
                         TransferStats& stats);

// What a transfer from memory calls at certain points.
struct StagingSteps {
  // Called once, when every payload has been copied and its source flushed,
  // possibly before anything is written.
  absl::FunctionRef<absl::Status()> on_staged;
  // Called once, before the file is created; returns its destination. Until
  // then the file may be renamed. With a large pool, it is called after
  // on_staged.
  absl::FunctionRef<absl::StatusOr<Destination*>()> open;
};

// The same as TransferImages for an output of one file all of whose payloads
// have a source: copies as much as the memory holds before it asks for the
// destination. An error of a step ends the transfer; no step is called after an
// error. The sources are flushed in any case.
absl::StatusOr<std::vector<ChunkDigest>> StageAndTransfer(
    FileSystem& fs, Output& output, const StagingSteps& steps,
    const ImageTransferOptions& options, TransferStats& stats);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_WRITE_IMAGE_TRANSFER_H_
