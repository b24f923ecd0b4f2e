// SPDX-License-Identifier: Apache-2.0
// TransferImages: carries out an Output. It creates the files, takes their
// images through the pipeline block by block, computes checksums and digests on
// the way, and syncs the files. They become a checkpoint only by the commit
// that follows (destination.h). image_stream.h does the same for a stream, and
// staged_transfer.h for a trainer that waits. Blocking; any thread.
#ifndef DCP_CHECKPOINT_WRITE_IMAGE_TRANSFER_H_
#define DCP_CHECKPOINT_WRITE_IMAGE_TRANSFER_H_

#include <cstdint>
#include <stop_token>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/checkpoint/read/source_check.h"
#include "dcp/io/file_system.h"
#include "dcp/io/lane.h"
#include "dcp/io/pipeline.h"
#include "dcp/plan/pieces.h"

namespace dcp {

// How many elements of one payload a cast found beyond the new type's range.
struct NumBeyond {
  uint32_t payload = 0;  // the payload's number in the output
  uint64_t count = 0;

  friend bool operator==(const NumBeyond&, const NumBeyond&) = default;
};

// A file, or a piece of one, that is complete, synced and closed.
struct WrittenFile {
  std::vector<ChunkDigest> digests;   // of the payloads, if they are needed
  std::vector<NumBeyond> num_beyond;  // of the payloads
  // For a piece: the CRCs of the payloads in the parts, if they are needed.
  std::vector<uint32_t> crcs = {};
};

// For a transfer that a later run can resume after a kill.
struct TransferSteps {
  // Replaces the files: only these pieces are moved, into files that others
  // write at the same time. Every "file" below then means a piece.
  std::vector<FilePiece> pieces = {};
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

// The blocks of a transfer.
struct OutputBlocks {
  uint64_t block_bytes = kBlockBytes;
  // Each file is written in whole blocks; see FileSystemTraits.
  bool whole = false;
};

struct ImageTransferOptions {
  DirectMode direct = DirectMode::kAuto;
  uint32_t num_lanes = 1;
  uint64_t memory_bytes = 0;  // for all lanes together
  OutputBlocks blocks = {};
  KeptLanes* kept_lanes = nullptr;  // for several transfers; optional
  // The most bytes a second that each lane writes; 0 means no limit.
  uint64_t max_rate = 0;
  std::stop_token stop = {};
  TransferSteps* steps = nullptr;  // optional
  // Sees all bytes that are read from the checkpoint; optional.
  SourceCheck* check = nullptr;
  // Gets, for each payload in the output, how many elements the cast found
  // beyond the range (see TransformElements). The caller sets the size;
  // optional.
  std::vector<uint64_t>* num_beyond = nullptr;
  // Fails with FailedPrecondition if there is such an element, before the file
  // that holds it is complete.
  bool strict_cast = false;
};

// The blocks with which `output` is written to `path`: those that the largest
// file needs. ResourceExhausted as BlockBytesFor.
absl::StatusOr<OutputBlocks> OutputBlocksFor(FileSystem& fs,
                                             absl::string_view path,
                                             const Output& output);

// How many lanes are useful for `output`; a file is written by one lane.
uint32_t UsefulLanes(const Output& output);

// The memory with which a lane transfers `output`; more than can be in flight
// if batches need it (see [Note: scattered] in mapped_payloads.h).
LaneMemory LaneMemoryFor(const Output& output, uint64_t memory_bytes,
                         uint64_t block_bytes);

// Writes all files in `output` that are not kept to `destination`, for which
// Begin was called. Returns the digests of the payloads if the output needs
// them. Blocking.
absl::StatusOr<std::vector<ChunkDigest>> TransferImages(
    FileSystem& fs, Output& output, Destination& destination,
    const ImageTransferOptions& options, TransferStats& stats);

// How many bytes TransferImages would read: plans everything, but reads and
// writes nothing. Calls `on_read` with each read. `options.check` is told which
// reads it would see and cannot check anything afterwards.
absl::StatusOr<uint64_t> PlanTransfer(
    Output& output, const ImageTransferOptions& options,
    absl::FunctionRef<void(const PlannedRead& read)> on_read);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_WRITE_IMAGE_TRANSFER_H_
