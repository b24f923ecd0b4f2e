// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/read/range_reader.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "dcp/base/error_side.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/read/read_run.h"
#include "dcp/plan/read_schedule.h"
#include "dcp/plan/strided/copy_run.h"

namespace dcp {
namespace {

using Visit = absl::FunctionRef<absl::Status(size_t range, uint64_t begin,
                                             ByteSpan bytes)>;

class RangeReader {
 public:
  RangeReader(SourceFiles& files, absl::Span<const FileRange> ranges,
              Visit visit)
      : files_(files), ranges_(ranges), visit_(visit) {}

  absl::StatusOr<bool> NextBatch(Batch& batch) {
    // Owned by the batch's two callbacks.
    auto round = std::make_shared<Round>();
    for (uint32_t i = 0; i < batch.blocks.size(); ++i) {
      round->blocks.push_back(batch.blocks[i].data());
      // One read fills a block.
      PlanBlock(i, MaxReadBytes(batch.blocks[i].size()), *round);
    }
    if (round->pieces.empty()) return false;
    round->schedule = ScheduleReads(
        round->runs,
        {MaxReadBytes(batch.blocks[0].size()), ReadGapBytes(files_.traits())});
    for (const ReadRange& range : round->schedule.ranges) {
      DCP_ASSIGN_OR_RETURN(const File file, files_.Get(range.file));
      batch.reads.push_back({file, range.offset, range.length});
    }
    batch.on_read = [round](size_t read, ByteSpan data) {
      const ReadRange& range = round->schedule.ranges[read];
      for (uint32_t i = 0; i < range.num_runs; ++i) {
        const CopyRun& run =
            round->runs[round->schedule.run_indices[range.first_run + i]];
        ApplyRun(run, range.offset, range.length, data,
                 [&](const uint8_t* src, uint64_t dst, uint64_t n) {
                   std::memcpy(round->blocks[run.tag] + dst, src, n);
                 });
      }
      return absl::OkStatus();
    };
    batch.on_filled = [this, round](std::vector<Block>& blocks) {
      for (const Piece& piece : round->pieces) {
        const ByteSpan bytes(blocks[piece.block].data() + piece.position,
                             piece.length);
        DCP_RETURN_IF_ERROR(visit_(piece.range, piece.begin, bytes));
      }
      return absl::OkStatus();
    };
    return true;
  }

 private:
  struct Piece {
    size_t range;
    uint32_t block;
    uint64_t position;
    uint64_t begin;  // in the range
    uint64_t length;
  };
  struct Round {
    std::vector<Piece> pieces;
    std::vector<CopyRun> runs;  // each run's tag is a block
    std::vector<uint8_t*> blocks;
    ReadSchedule schedule;
  };

  void PlanBlock(uint32_t block, uint64_t num_bytes, Round& round) {
    uint64_t position = 0;
    while (position < num_bytes && next_range_ < ranges_.size()) {
      const FileRange& range = ranges_[next_range_];
      const uint64_t length =
          std::min(range.length - next_begin_, num_bytes - position);
      if (length > 0) {
        round.pieces.push_back(
            {next_range_, block, position, next_begin_, length});
        round.runs.push_back({.file = range.file,
                              .tag = block,
                              .src = range.offset + next_begin_,
                              .dst = position,
                              .unit = length});
      }
      position += length;
      next_begin_ += length;
      if (next_begin_ == range.length) {
        ++next_range_;
        next_begin_ = 0;
      }
    }
  }

  SourceFiles& files_;
  const absl::Span<const FileRange> ranges_;
  const Visit visit_;
  // The next position to plan.
  size_t next_range_ = 0;
  uint64_t next_begin_ = 0;
};

}  // namespace

absl::Status ReadRanges(FileSystem& fs, SourceFiles& files,
                        absl::Span<const FileRange> ranges,
                        const ReadRangesOptions& options, Visit visit) {
  uint64_t bytes = 0;
  for (const FileRange& range : ranges) bytes += range.length;
  if (bytes == 0) return absl::OkStatus();
  RangeReader reader(files, ranges, visit);
  // More blocks than there are bytes to read would be pinned for nothing.
  const uint64_t block_bytes =
      ReadBlockBytes(files.traits(), options.memory_bytes);
  const uint64_t memory_bytes =
      std::min(options.memory_bytes,
               AlignUp(2 * bytes, block_bytes) + 2 * kMinBlocks * block_bytes);
  return RunReads(
      fs,
      {.memory_bytes = memory_bytes,
       .block_bytes = block_bytes,
       .side = ErrorSide::kSource,
       .stop = options.stop,
       .stats = options.stats},
      [&](Batch& batch) { return reader.NextBatch(batch); },
      [&](FileHandle handle) { return files.Describe(handle); });
}

}  // namespace dcp
