// SPDX-License-Identifier: Apache-2.0
// Pipeline: the one loop that moves payload. It runs batches; a batch is some
// reads, a step that completes the batch's blocks, and some writes from those
// blocks. Saving has no reads, loading and verifying have no writes, converting
// has both. Later batches' reads overlap with earlier batches' writes; memory
// comes from the pool. While blocks are free, starting batches has priority:
// everything that `next` copies into a large pool is copied before any batch is
// filled and written. Short transfers, retries, alignment for O_DIRECT and
// cancellation are handled here. The pipeline knows bytes and offsets, not
// tensors. It runs on the calling thread, which owns queue and pool.
#ifndef DCP_IO_PIPELINE_H_
#define DCP_IO_PIPELINE_H_

#include <atomic>
#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/base/bytes.h"
#include "dcp/io/block_pool.h"
#include "dcp/io/file_system.h"
#include "dcp/io/io_queue.h"

namespace dcp {

// The longest PlannedRead: a block minus the possible alignment at both ends.
inline constexpr uint64_t MaxReadBytes(uint64_t block_bytes) {
  return block_bytes - 3 * kMaxDirectAlignment;
}
// The same for the smallest blocks that a pool may have.
inline constexpr uint64_t kMaxReadBytes = MaxReadBytes(kBlockBytes);

struct PlannedRead {
  File file;
  uint64_t offset = 0;
  uint64_t length = 0;  // 1 to MaxReadBytes, inside the file
};

// Writes `length` bytes from the batch's block `block`, starting at `position`,
// to `offset` in the file. Position and offset have the file's alignment; a
// direct file's last, partial piece is padded with zeros up to it (truncate the
// file afterwards).
struct PlannedWrite {
  File file;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint32_t block = 0;
  uint64_t position = 0;
};

struct Batch {
  // Given by the pipeline, filled by the callbacks, returned by the pipeline.
  std::vector<Block> blocks;

  std::vector<PlannedRead> reads;
  // Called as reads complete, in any order. `data` holds the read's range and
  // up to kReadMarginBytes behind it, as far as the file goes.
  absl::AnyInvocable<absl::Status(size_t read, ByteSpan data)> on_read;

  // Called once, after all reads in this batch and after on_filled for every
  // earlier batch, for work that must happen in order (checksums). It gets the
  // batch's blocks and may still change `writes`; the files need not be open
  // before.
  absl::AnyInvocable<absl::Status(std::vector<Block>& blocks)> on_filled;

  std::vector<PlannedWrite> writes;

  // The bytes that `next` and the callbacks have read by themselves.
  uint64_t num_bytes_read = 0;
};

// Counters that other threads may watch while a transfer runs. Relaxed: a count
// says nothing about other memory.
struct TransferStats {
  std::atomic<uint64_t> bytes_read{0};
  std::atomic<uint64_t> bytes_written{0};
  std::atomic<uint64_t> num_reads{0};
  std::atomic<uint64_t> num_writes{0};
};

// Fills the given batch and returns true. The batch's `blocks` hold
// `blocks_per_batch` blocks, or fewer (at least one) if the pool is small; or
// returns false when there are no more batches. The batch does not move until
// it is finished.
using NextBatch = absl::FunctionRef<absl::StatusOr<bool>(Batch& batch)>;

// Runs batches until `next` has no more. About half the pool, or as much as can
// be in flight, serves reads, and the rest two batches or more; if
// `blocks_per_batch` is 0, batches have no blocks and the whole pool serves
// reads. After an error or a stop request nothing new is submitted, requests in
// the kernel are reaped, and the first error, or Cancelled, is returned. A read
// or write error names the file (through `describe`), the offset and the
// length, and is marked with the place and the side: source for reads,
// destination for writes (dcp/base/error_place.h, error_side.h).
absl::Status RunPipeline(IoQueue& queue, BlockPool& pool,
                         uint64_t blocks_per_batch, NextBatch next,
                         absl::FunctionRef<std::string(FileHandle)> describe,
                         std::stop_token stop, TransferStats& stats);

}  // namespace dcp

#endif  // DCP_IO_PIPELINE_H_
