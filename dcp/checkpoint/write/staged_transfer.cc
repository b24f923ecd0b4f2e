// SPDX-License-Identifier: Apache-2.0
// In time order:
//   1. blocks are copied from the sources, batch after batch, as long as the
//      pool has free ones; see the note on the order of work in
//      dcp/io/pipeline.cc
//   2. on_staged, when all is copied: before step 3 if the pool holds it all
//   3. open, then the file is created, when the first block is filled in order;
//      then checksums and writes
//   4. the file is completed and synced
//
// A batch is one block: there is nothing to plan together, and this uses the
// last blocks of the pool too.
//
// Tested by tests/dcp/checkpoint/save/async_save_test.cc.
#include "dcp/checkpoint/write/staged_transfer.h"

#include <utility>

#include "dcp/base/check.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/write/image_batches.h"
#include "dcp/io/lane.h"
#include "dcp/io/paced_queue.h"

namespace dcp {
namespace {

class StagedTransfer {
 public:
  StagedTransfer(FileSystem& fs, Output& output, const StagingSteps& steps,
                 const StagedTransferOptions& options, TransferStats& stats)
      : fs_(fs),
        steps_(steps),
        direct_(options.direct),
        block_bytes_(options.pool != nullptr ? options.pool->block_bytes()
                                             : options.block_bytes),
        max_rate_(options.max_rate),
        stats_(stats),
        batches_(output, {}) {
    batches_.Start({0});
  }

  ~StagedTransfer() { image().Abandon(fs_); }

  absl::Status Run(Lane& lane, std::stop_token stop) {
    PacedQueue queue(*lane.queue, max_rate_);
    const absl::Status moved = RunPipeline(
        queue, lane.pool, /*blocks_per_batch=*/1,
        [this](Batch& batch) { return NextBatch(batch); },
        [this](FileHandle handle) { return batches_.Describe(handle); },
        std::move(stop), stats_);
    if (!moved.ok()) {
      batches_.FlushSources().IgnoreError();
      return moved;
    }
    DCP_RETURN_IF_ERROR(OpenOnce());  // a file without bytes
    return WithSide(image().Close(fs_), ErrorSide::kDestination);
  }

  const std::vector<ChunkDigest>& digests() { return image().digests(); }

 private:
  FileImage& image() { return *batches_.images()[0]; }

  absl::StatusOr<bool> NextBatch(Batch& batch) {
    DCP_ASSIGN_OR_RETURN(std::vector<ImagePiece> pieces, batches_.Plan(batch));
    DCP_RETURN_IF_ERROR(ReportStagedOnce());
    if (pieces.empty()) return false;
    batch.on_filled = [this, &batch, pieces = std::move(pieces)](
                          std::vector<Block>& blocks) -> absl::Status {
      DCP_RETURN_IF_ERROR(OpenOnce());
      for (PlannedWrite& write : batch.writes) write.file = image().file();
      return batches_.Fill(pieces, blocks);
    };
    return true;
  }

  absl::Status ReportStagedOnce() {
    if (staged_ || !batches_.all_planned()) return absl::OkStatus();
    staged_ = true;
    DCP_RETURN_IF_ERROR(batches_.FlushSources());
    return steps_.on_staged();
  }

  absl::Status OpenOnce() {
    if (opened_) return absl::OkStatus();
    opened_ = true;
    DCP_ASSIGN_OR_RETURN(Destination * destination, steps_.open());
    const std::string& name = image().layout().name();
    DCP_RETURN_IF_ERROR(
        WithSide(image().Create(fs_, *destination, direct_, block_bytes_),
                 ErrorSide::kDestination));
    destination->Created(name);
    return absl::OkStatus();
  }

  FileSystem& fs_;
  const StagingSteps& steps_;
  const DirectMode direct_;
  const uint64_t block_bytes_;
  const uint64_t max_rate_;
  TransferStats& stats_;
  ImageBatches batches_;
  bool staged_ = false;
  bool opened_ = false;
};

}  // namespace

absl::StatusOr<std::vector<ChunkDigest>> StageAndTransfer(
    FileSystem& fs, Output& output, const StagingSteps& steps,
    const StagedTransferOptions& options, TransferStats& stats) {
  DCP_CHECK(output.files.size() == 1, "files=", output.files.size());
  StagedTransfer transfer(fs, output, steps, options, stats);
  const auto work = [&](Lane& lane, std::stop_token stop) {
    return transfer.Run(lane, std::move(stop));
  };
  DCP_RETURN_IF_ERROR(
      options.pool != nullptr
          ? RunLane(fs, *options.pool, options.stop, work)
          : RunLanes(fs, 1, {options.memory_bytes, options.block_bytes},
                     options.stop, work));
  return transfer.digests();
}

}  // namespace dcp
