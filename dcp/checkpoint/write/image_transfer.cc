// SPDX-License-Identifier: Apache-2.0
// A lane takes its files in waves, and the files of a wave one after the other,
// block by block, or side by side (see [Note: interleaving] in interleaving.h).
// A batch is a few consecutive blocks, which are planned together.
//
// [Note: steps] A transfer that must survive a kill completes files early: a
// wave ends when enough is written. Files that advance side by side still form
// one wave, because otherwise their source would be read again for each.
#include "dcp/checkpoint/write/image_transfer.h"

#include <algorithm>
#include <cstddef>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "dcp/base/error_side.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/output/interleaving.h"
#include "dcp/checkpoint/output/mapped_payloads.h"
#include "dcp/checkpoint/write/image_batches.h"
#include "dcp/io/block_pool.h"
#include "dcp/io/lane.h"
#include "dcp/io/paced_queue.h"

namespace dcp {
namespace {

bool MovesPieces(const ImageTransferOptions& options) {
  return options.steps != nullptr && !options.steps->pieces.empty();
}

// The byte count of the file, or piece, with this number.
uint64_t ImageBytes(const Output& output, const ImageTransferOptions& options,
                    uint32_t number) {
  return MovesPieces(options) ? options.steps->pieces[number].length
                              : output.files[number].layout.size();
}

// How many of `files` form the next wave. See [Note: steps].
size_t WaveSize(const Output& output, const ImageTransferOptions& options,
                bool interleave, uint64_t blocks_per_batch,
                absl::Span<const uint32_t> files) {
  size_t most = std::min<size_t>(files.size(), kMaxOpenOutputs);
  if (interleave && options.blocks.whole) {
    most = std::min<size_t>(most, blocks_per_batch);
  }
  if (options.steps == nullptr || interleave) return most;
  uint64_t bytes = 0;
  for (size_t i = 0; i < most; ++i) {
    bytes += ImageBytes(output, options, files[i]);
    if (bytes >= options.steps->step_bytes) return i + 1;
  }
  return most;
}

ImageBatchesOptions BatchesOptions(const ImageTransferOptions& options,
                                   bool interleave) {
  return {.interleave = interleave,
          .whole_blocks = options.blocks.whole,
          .block_bytes = options.blocks.block_bytes,
          .check = options.check,
          .count_beyond = options.num_beyond != nullptr,
          .strict_cast = options.strict_cast};
}

// The counts for an image's payloads.
std::vector<NumBeyond> MakeNumBeyond(const FileImage& image,
                                     absl::Span<const uint64_t> counts) {
  std::vector<NumBeyond> found;
  if (counts.empty()) return found;
  for (size_t i = image.first_part(); i < image.end_part(); ++i) {
    const LayoutPart& part = image.layout().parts()[i];
    if (part.payload_length == 0) continue;
    const uint64_t count = counts[part.payload];
    if (count > 0) found.push_back({part.payload, count});
  }
  return found;
}

// Transfers the files of several lanes. Each lane calls RunLane.
class FilesTransfer {
 public:
  FilesTransfer(FileSystem& fs, Output& output, Destination& destination,
                const ImageTransferOptions& options, bool interleave,
                TransferStats& stats)
      : fs_(fs),
        output_(output),
        options_(options),
        interleave_(interleave),
        stats_(stats),
        destination_(destination) {}

  absl::Status RunLane(Lane& lane, absl::Span<const uint32_t> files,
                       const std::stop_token& stop) {
    ImageBatches batches(output_, BatchesOptions(options_, interleave_));
    while (!files.empty()) {
      const size_t num_files =
          WaveSize(output_, options_, interleave_,
                   batches.BlocksPerBatch(lane.pool.num_blocks()), files);
      if (MovesPieces(options_)) {
        batches.StartPieces(options_.steps->pieces, files.first(num_files));
      } else {
        batches.Start(files.first(num_files));
      }
      files.remove_prefix(num_files);
      const absl::Status status = RunWave(lane, batches, stop);
      if (options_.num_beyond != nullptr) {
        absl::MutexLock lock(&mutex_);
        batches.AddNumBeyondTo(*options_.num_beyond);
      }
      for (const auto& image : batches.images()) image->Abandon(fs_);
      DCP_RETURN_IF_ERROR(status);
    }
    return absl::OkStatus();
  }

  std::vector<ChunkDigest> TakeDigests() {
    absl::MutexLock lock(&mutex_);
    return std::move(digests_);
  }

 private:
  absl::Status RunWave(Lane& lane, ImageBatches& batches,
                       const std::stop_token& stop) {
    for (const auto& image : batches.images()) {
      DCP_RETURN_IF_ERROR(WithSide(Create(*image), ErrorSide::kDestination));
    }
    PacedQueue queue(*lane.queue, options_.max_rate);
    const absl::Status moved = RunPipeline(
        queue, lane.pool, batches.BlocksPerBatch(lane.pool.num_blocks()),
        [&](Batch& batch) { return NextBatch(batches, batch); },
        [&](FileHandle handle) { return batches.Describe(handle); }, stop,
        stats_);
    if (!moved.ok()) {
      batches.FlushSources().IgnoreError();
      return moved;
    }
    DCP_RETURN_IF_ERROR(batches.CheckCasts());
    for (const auto& image : batches.images()) {
      DCP_RETURN_IF_ERROR(WithSide(image->Close(fs_), ErrorSide::kDestination));
      stats_.bytes_written += image->num_held();
      DCP_RETURN_IF_ERROR(Report(*image, batches.num_beyond()));
    }
    return absl::OkStatus();
  }

  static absl::StatusOr<bool> NextBatch(ImageBatches& batches, Batch& batch) {
    DCP_ASSIGN_OR_RETURN(std::vector<ImagePiece> pieces, batches.Plan(batch));
    if (pieces.empty()) return false;
    batch.on_filled = [&batches,
                       pieces = std::move(pieces)](std::vector<Block>& blocks) {
      return batches.Fill(pieces, blocks);
    };
    return true;
  }

  absl::Status Create(FileImage& image) {
    const std::string& name = image.layout().name();
    DCP_RETURN_IF_ERROR(image.Create(fs_, destination_, options_.direct,
                                     options_.blocks.block_bytes));
    absl::MutexLock lock(&mutex_);
    destination_.Created(name);
    return absl::OkStatus();
  }

  // Reports that the file is durable.
  absl::Status Report(const FileImage& image,
                      absl::Span<const uint64_t> num_beyond) {
    absl::MutexLock lock(&mutex_);
    digests_.insert(digests_.end(), image.digests().begin(),
                    image.digests().end());
    if (options_.steps == nullptr) return absl::OkStatus();
    WrittenFile written{.digests = image.digests(),
                        .num_beyond = MakeNumBeyond(image, num_beyond)};
    if (MovesPieces(options_) && output_.needs_crcs) {
      written.crcs.assign(image.crcs().begin(), image.crcs().end());
    }
    return options_.steps->on_file(image.index(), written);
  }

  FileSystem& fs_;
  Output& output_;
  const ImageTransferOptions& options_;
  const bool interleave_;
  TransferStats& stats_;
  absl::Mutex mutex_;  // also guards options_.num_beyond, steps and Created
  Destination& destination_;
  std::vector<ChunkDigest> digests_ ABSL_GUARDED_BY(mutex_);
};

// The files of each lane, distributed by bytes; within a lane they stay in
// order.
std::vector<std::vector<uint32_t>> SpreadFiles(
    const Output& output, const ImageTransferOptions& options) {
  const uint32_t num_lanes = options.num_lanes;
  const size_t num_files =
      MovesPieces(options) ? options.steps->pieces.size() : output.files.size();
  std::vector<uint32_t> by_size;
  for (uint32_t i = 0; i < num_files; ++i) {
    const bool kept = options.steps != nullptr &&
                      !options.steps->kept.empty() && options.steps->kept[i];
    if (!kept) by_size.push_back(i);
  }
  std::stable_sort(by_size.begin(), by_size.end(), [&](uint32_t a, uint32_t b) {
    return ImageBytes(output, options, a) > ImageBytes(output, options, b);
  });
  std::vector<std::vector<uint32_t>> lanes(num_lanes);
  std::vector<uint64_t> bytes(num_lanes);
  for (const uint32_t file : by_size) {
    const size_t lane = static_cast<size_t>(
        std::min_element(bytes.begin(), bytes.end()) - bytes.begin());
    lanes[lane].push_back(file);
    bytes[lane] += ImageBytes(output, options, file);
  }
  for (std::vector<uint32_t>& lane : lanes) std::sort(lane.begin(), lane.end());
  return lanes;
}

// The bytes that a lane with `num_blocks` blocks would read for `files`. The
// blocks are only used for planning; their memory is not touched.
absl::StatusOr<uint64_t> CountReads(
    Output& output, const ImageTransferOptions& options, bool interleave,
    uint64_t num_blocks, absl::Span<const uint32_t> files,
    absl::FunctionRef<void(const PlannedRead& read)> on_read) {
  ImageBatches batches(output, BatchesOptions(options, interleave));
  batches.ReportPlans();
  BlockPool pool(batches.BlocksPerBatch(num_blocks),
                 options.blocks.block_bytes);
  uint64_t num_bytes = 0;
  while (!files.empty()) {
    const size_t num_files =
        WaveSize(output, options, interleave, pool.num_blocks(), files);
    batches.Start(files.first(num_files));
    files.remove_prefix(num_files);
    bool more = true;
    while (more) {
      if (options.stop.stop_requested()) {
        return absl::CancelledError("stopped");
      }
      Batch batch;
      while (pool.num_free() > 0) batch.blocks.push_back(pool.TryAcquire());
      DCP_ASSIGN_OR_RETURN(const std::vector<ImagePiece> pieces,
                           batches.Plan(batch));
      more = !pieces.empty();
      for (const PlannedRead& read : batch.reads) {
        num_bytes += read.length;
        on_read(read);
      }
    }
  }
  return num_bytes;
}

}  // namespace

absl::StatusOr<OutputBlocks> OutputBlocksFor(FileSystem& fs,
                                             absl::string_view path,
                                             const Output& output) {
  uint64_t largest = 0;
  for (const OutputFile& file : output.files) {
    largest = std::max(largest, file.layout.size());
  }
  const FileSystemTraits traits = fs.TraitsAt(path);
  DCP_ASSIGN_OR_RETURN(const uint64_t block_bytes,
                       BlockBytesFor(traits, largest));
  return OutputBlocks{.block_bytes = block_bytes, .whole = !traits.has_rename};
}

uint32_t UsefulLanes(const Output& output) {
  // One lane is enough for a disk with a few GB/s; interleaved files share
  // their reads.
  const uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
  if (NeedsInterleaving(output)) return 1;
  // One lane with all the memory holds the most of a transposed matrix.
  if (ScatteredBytes(output) > 0) return 1;
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(output.files.size(), 1, std::min(cores, 2u)));
}

LaneMemory LaneMemoryFor(const Output& output, uint64_t memory_bytes,
                         uint64_t block_bytes) {
  LaneMemory memory(memory_bytes, block_bytes);
  memory.more_blocks =
      2 * BlocksForScattered(ScatteredBytes(output), block_bytes);
  return memory;
}

absl::StatusOr<std::vector<ChunkDigest>> TransferImages(
    FileSystem& fs, Output& output, Destination& destination,
    const ImageTransferOptions& options, TransferStats& stats) {
  const std::vector<std::vector<uint32_t>> files = SpreadFiles(output, options);
  FilesTransfer transfer(fs, output, destination, options,
                         NeedsInterleaving(output), stats);
  LaneMemory memory =
      LaneMemoryFor(output, options.memory_bytes, options.blocks.block_bytes);
  memory.kept = options.kept_lanes;
  DCP_RETURN_IF_ERROR(RunLanes(fs, options.num_lanes, memory, options.stop,
                               [&](Lane& lane, std::stop_token stop) {
                                 return transfer.RunLane(
                                     lane, files[lane.index], stop);
                               }));
  return transfer.TakeDigests();
}

absl::StatusOr<uint64_t> PlanTransfer(
    Output& output, const ImageTransferOptions& options,
    absl::FunctionRef<void(const PlannedRead& read)> on_read) {
  const bool interleave = NeedsInterleaving(output);
  uint64_t num_bytes = 0;
  const uint64_t num_blocks = NumLaneBlocks(
      options.num_lanes,
      LaneMemoryFor(output, options.memory_bytes, options.blocks.block_bytes));
  for (const std::vector<uint32_t>& files : SpreadFiles(output, options)) {
    DCP_ASSIGN_OR_RETURN(
        const uint64_t of_lane,
        CountReads(output, options, interleave, num_blocks, files, on_read));
    num_bytes += of_lane;
  }
  return num_bytes;
}

}  // namespace dcp
