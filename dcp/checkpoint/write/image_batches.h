// SPDX-License-Identifier: Apache-2.0
// ImageBatches: goes through the images of some output files, batch by batch.
// It plans which stretch of which file goes into which block, which bytes must
// be read or copied for it, and completes the blocks. The three users decide
// where the blocks go: image_transfer, image_stream and staged_transfer. Used
// by one thread.
#ifndef DCP_CHECKPOINT_WRITE_IMAGE_BATCHES_H_
#define DCP_CHECKPOINT_WRITE_IMAGE_BATCHES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/checkpoint/read/source_check.h"
#include "dcp/checkpoint/read/window_planner.h"
#include "dcp/checkpoint/write/file_image.h"
#include "dcp/io/block_pool.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"
#include "dcp/plan/pieces.h"

namespace dcp {

// A stretch of a block that is all literal or all from one payload.
struct ImagePiece {
  FileImage* image;
  uint32_t block;
  uint64_t position;  // in the block
  size_t part;
  bool literal;
  uint64_t begin;  // in the literal or the payload
  uint64_t end;
};

// A batch needs up to 100 bytes for each extent, for nests and planned reads. A
// batch that has reached this many extents is closed, with fewer blocks than it
// could have, so that a mapping with many small pieces cannot fill the memory.
// A transposed matrix with long rows that must be read in stripes has one
// extent for each source row, or a few.
inline constexpr uint64_t kMaxNestExtentsPerBatch = uint64_t{1} << 20;

struct ImageBatchesOptions {
  // The files advance side by side. See [Note: interleaving].
  bool interleave = false;
  // Blocks are not shared by files: each file is written in whole blocks.
  bool whole_blocks = false;
  uint64_t block_bytes = kBlockBytes;
  uint64_t max_nest_extents = kMaxNestExtentsPerBatch;
  SourceCheck* check = nullptr;  // sees all bytes that are read; optional
  // Counts the elements that a cast finds beyond the range; or refuses them.
  bool count_beyond = false;
  bool strict_cast = false;
};

class ImageBatches {
 public:
  // `output` must outlive this.
  ImageBatches(Output& output, const ImageBatchesOptions& options);

  // For batches that never run: see WindowPlanner.
  void ReportPlans() { planner_.ReportPlans(); }

  // Begins with the given files, by their numbers in the output. Forgets the
  // previous files and their counts.
  void Start(absl::Span<const uint32_t> files);
  // The same with the given pieces, by their numbers among `pieces`.
  void StartPieces(absl::Span<const FilePiece> pieces,
                   absl::Span<const uint32_t> numbers);
  const std::vector<std::unique_ptr<FileImage>>& images() const {
    return images_;
  }

  // How many blocks from a pool with `num_blocks` a batch has, for reads that
  // are worth planning together. See [Note: scattered] in mapped_payloads.h.
  uint64_t BlocksPerBatch(uint64_t num_blocks) const;

  // Plans the reads and writes of the next batch in the given blocks; copying
  // from sources begins. Returns the pieces that go into the blocks, none when
  // all files are planned. A write has the file that the image has now.
  absl::StatusOr<std::vector<ImagePiece>> Plan(Batch& batch);
  bool all_planned() const { return NumUnplanned() == 0; }

  // Completes the blocks of a batch, in batch order, because literals may use
  // the checksums of earlier bytes.
  absl::Status Fill(absl::Span<const ImagePiece> pieces,
                    std::vector<Block>& blocks);

  // After this, nothing is being copied into blocks any more.
  absl::Status FlushSources();

  // The path of a file that is read or written.
  std::string Describe(FileHandle handle) const;

  // For each payload, how many elements the casts found beyond the range in
  // these files; empty if there was no cast.
  const std::vector<uint64_t>& num_beyond() const { return num_beyond_; }
  // Adds them to `totals`, which has one count for each payload in the output.
  void AddNumBeyondTo(std::vector<uint64_t>& totals) const;
  // FailedPrecondition if a strict cast found any.
  absl::Status CheckCasts() const;

 private:
  // The place in a batch for a stretch of one file.
  struct Slot {
    uint32_t block;
    uint64_t position;  // in the block
    uint64_t length;
  };

  void Reset();
  uint64_t NumUnplanned() const;
  uint64_t SlotBytes(uint64_t num_blocks, uint64_t block_bytes) const;
  uint64_t NumSlots(uint64_t most) const;
  bool ClosesEarly(uint64_t num_slots) const;
  FileImage* NextFile();
  absl::Status PlanSlot(FileImage& image, const Slot& slot, Batch& batch,
                        std::vector<ImagePiece>& pieces);
  absl::Status PlanPayload(const LayoutPart& part, const ImagePiece& piece,
                           uint8_t* dst);
  absl::Status FillPiece(const ImagePiece& piece, uint8_t* block);
  uint64_t* FindCounter(uint32_t payload);

  Output& output_;
  const bool interleave_;
  const bool whole_blocks_;
  const uint64_t blocks_for_scattered_;
  const uint64_t max_nest_extents_;
  const bool count_beyond_;
  const bool strict_cast_;
  WindowPlanner planner_;
  std::vector<std::unique_ptr<FileImage>> images_;
  std::vector<uint64_t> num_beyond_;
  bool flushed_ = false;  // all sources, after everything was planned
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_WRITE_IMAGE_BATCHES_H_
