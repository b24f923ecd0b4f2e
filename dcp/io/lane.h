// SPDX-License-Identifier: Apache-2.0
// Lane: a thread with a separate queue and separate blocks, sharing no data,
// and the functions that run one or several lanes. Code on a lane is
// straight-line and blocking.
#ifndef DCP_IO_LANE_H_
#define DCP_IO_LANE_H_

#include <cstdint>
#include <memory>
#include <stop_token>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/base/limits.h"
#include "dcp/io/block_pool.h"
#include "dcp/io/file_system.h"
#include "dcp/io/io_queue.h"

namespace dcp {

struct Lane {
  uint32_t index;
  BlockPool& pool;
  std::unique_ptr<IoQueue> queue;
};

// The blocks and queues from lanes that have ended well, for the next transfer:
// to allocate, touch and register blocks takes as long as moving many blocks.
// Used by one RunLanes at a time.
class KeptLanes {
 public:
  struct Kept {
    std::unique_ptr<BlockPool> pool;
    std::unique_ptr<IoQueue> queue;  // for the pool's memory
  };

  // The blocks and queue that lane `index` kept, or an empty Kept. Each index
  // is used by one thread.
  Kept Take(uint32_t index) { return std::move(lanes_[index]); }
  void Keep(uint32_t index, Kept kept) { lanes_[index] = std::move(kept); }
  void Reserve(uint32_t num_lanes);

 private:
  std::vector<Kept> lanes_;
};

// The blocks that lanes share.
struct LaneMemory {
  // NOLINTNEXTLINE(google-explicit-constructor): most have the usual blocks.
  LaneMemory(uint64_t all, uint64_t each = kBlockBytes)
      : memory_bytes(all), block_bytes(each) {}

  uint64_t memory_bytes;
  uint64_t block_bytes;
  KeptLanes* kept = nullptr;  // optional; from the same file system
  // The blocks that a lane may have in addition to those in flight, for batches
  // that need many.
  uint64_t more_blocks = 0;
};

// The blocks for each of `num_lanes` lanes; at most as many as can be in
// flight, plus memory.more_blocks.
uint64_t NumLaneBlocks(uint32_t num_lanes, const LaneMemory& memory);

// Runs `work` on `num_lanes` lanes at once and waits for all. Each gets an
// equal share of `memory`, but not more than can be in flight. The first error
// stops the other lanes through their tokens and is returned; a request on
// `stop` stops all. With one lane, `work` runs on the calling thread.
// InvalidArgument when a share is below kMinBlocks blocks, ResourceExhausted
// when the system does not provide the memory.
absl::Status RunLanes(
    FileSystem& fs, uint32_t num_lanes, const LaneMemory& memory,
    std::stop_token stop,
    absl::FunctionRef<absl::Status(Lane& lane, std::stop_token stop)> work);

// Runs `work` as the only lane, on the calling thread, with the caller's
// `pool`, which may be larger than the bytes that can be in flight. The memory
// is not registered with the kernel, because that would lock all of it before
// the first byte moves. InvalidArgument when fewer than kMinBlocks blocks are
// free.
absl::Status RunLane(
    FileSystem& fs, BlockPool& pool, std::stop_token stop,
    absl::FunctionRef<absl::Status(Lane& lane, std::stop_token stop)> work);

}  // namespace dcp

#endif  // DCP_IO_LANE_H_
