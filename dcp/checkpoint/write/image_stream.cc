// SPDX-License-Identifier: Apache-2.0
// Passes the batches of one file to a stream.
//
// Tested by tests/dcp/checkpoint/convert/convert_stream_test.cc.
#include "dcp/checkpoint/write/image_stream.h"

#include <stop_token>
#include <utility>
#include <vector>

#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/write/image_batches.h"
#include "dcp/io/lane.h"

namespace dcp {
namespace {

// Passes on the batch's writes, which are in file order.
absl::Status PassOn(Batch& batch, const std::vector<Block>& blocks,
                    ByteStream& stream, TransferStats& stats) {
  for (const PlannedWrite& write : batch.writes) {
    const ByteSpan bytes(blocks[write.block].data() + write.position,
                         write.length);
    DCP_RETURN_IF_ERROR(WithSide(stream(bytes), ErrorSide::kDestination));
    stats.bytes_written += write.length;
    ++stats.num_writes;
  }
  batch.writes.clear();
  return absl::OkStatus();
}

}  // namespace

absl::Status StreamImage(FileSystem& fs, Output& output, ByteStream& stream,
                         const ImageTransferOptions& options,
                         TransferStats& stats) {
  DCP_CHECK(output.files.size() == 1 && options.num_lanes == 1,
            "files=", output.files.size(), " num_lanes=", options.num_lanes);
  DCP_CHECK(options.steps == nullptr);
  ImageBatches batches(output, {.block_bytes = options.blocks.block_bytes,
                                .check = options.check,
                                .count_beyond = options.num_beyond != nullptr,
                                .strict_cast = options.strict_cast});
  batches.Start({0});
  const auto next = [&](Batch& batch) -> absl::StatusOr<bool> {
    DCP_ASSIGN_OR_RETURN(std::vector<ImagePiece> pieces, batches.Plan(batch));
    if (pieces.empty()) return false;
    batch.on_filled = [&, pieces = std::move(pieces)](
                          std::vector<Block>& blocks) -> absl::Status {
      DCP_RETURN_IF_ERROR(batches.Fill(pieces, blocks));
      return PassOn(batch, blocks, stream, stats);
    };
    return true;
  };
  const absl::Status moved = RunLanes(
      fs, 1, options.memory_bytes, options.stop,
      [&](Lane& lane, std::stop_token stop) {
        const absl::Status status = RunPipeline(
            *lane.queue, lane.pool,
            batches.BlocksPerBatch(lane.pool.num_blocks()), next,
            [&](FileHandle handle) { return batches.Describe(handle); },
            std::move(stop), stats);
        if (!status.ok()) batches.FlushSources().IgnoreError();
        return status;
      });
  if (options.num_beyond != nullptr) {
    batches.AddNumBeyondTo(*options.num_beyond);
  }
  DCP_RETURN_IF_ERROR(moved);
  return batches.CheckCasts();
}

}  // namespace dcp
