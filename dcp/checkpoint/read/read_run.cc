// SPDX-License-Identifier: Apache-2.0
// Chooses block sizes and gaps for a storage, and runs batches that only read.
// Tested by tests/dcp/checkpoint/read/range_reader_test.cc.
#include "dcp/checkpoint/read/read_run.h"

#include <algorithm>
#include <utility>

#include "dcp/base/limits.h"
#include "dcp/plan/read_schedule.h"

namespace dcp {

uint64_t ReadBlockBytes(const FileSystemTraits& traits, uint64_t memory_bytes) {
  return memory_bytes >= kMinBlocks * traits.block_bytes ? traits.block_bytes
                                                         : kBlockBytes;
}

uint64_t ReadGapBytes(const FileSystemTraits& traits) {
  return traits.has_rename ? kReadGapBytes : kObjectReadGapBytes;
}

uint64_t MostBlocksPerBatch(uint64_t num_blocks) {
  return (num_blocks - std::min<uint64_t>(num_blocks / 2, kQueueDepth)) / 2;
}

absl::Status RunReads(FileSystem& fs, const ReadRunOptions& options,
                      NextBatch next,
                      absl::FunctionRef<std::string(FileHandle)> describe) {
  TransferStats own_stats;
  TransferStats& stats = options.stats != nullptr ? *options.stats : own_stats;
  const auto work = [&](Lane& lane, std::stop_token stop) {
    const uint64_t num_blocks = lane.pool.num_blocks();
    const uint64_t blocks_per_batch =
        options.uses_blocks
            ? std::max<uint64_t>({num_blocks / 8,
                                  std::min(options.blocks_per_batch,
                                           MostBlocksPerBatch(num_blocks)),
                                  1})
            : 0;
    return WithSide(RunPipeline(*lane.queue, lane.pool, blocks_per_batch, next,
                                describe, std::move(stop), stats),
                    options.side);
  };
  if (options.lane != nullptr) return work(*options.lane, options.stop);
  if (options.pool != nullptr) {
    return RunLane(fs, *options.pool, options.stop, work);
  }
  return RunLanes(fs, 1, {options.memory_bytes, options.block_bytes},
                  options.stop, work);
}

}  // namespace dcp
