// SPDX-License-Identifier: Apache-2.0

#include "server/memory/memory_shares.h"

#include <algorithm>

namespace dcp::server {
namespace {

// Blocks per reader, each as large as a window. Half of them are in flight.
constexpr uint64_t kBlocksPerReader = 8;
// Unused windows may hold this fraction of the memory.
constexpr uint64_t kIdleShare = 4;

}  // namespace

uint64_t MemoryShares::readers_bytes() const {
  return static_cast<uint64_t>(num_readers) * blocks_per_reader * kBlockBytes;
}

MemoryShares DivideMemory(uint64_t max_memory_bytes, int64_t num_readers) {
  MemoryShares shares{.jobs_bytes = max_memory_bytes};
  const uint64_t blocks = max_memory_bytes / kReadersShare / kBlockBytes;
  shares.num_readers =
      std::min(num_readers, static_cast<int64_t>(blocks / kMinBlocks));
  if (shares.num_readers == 0) return shares;
  shares.blocks_per_reader =
      std::clamp(blocks / static_cast<uint64_t>(shares.num_readers), kMinBlocks,
                 kBlocksPerReader);
  shares.idle_bytes = max_memory_bytes / kIdleShare;
  shares.calls_bytes = shares.readers_bytes() + max_memory_bytes / kCallsShare;
  shares.jobs_bytes = max_memory_bytes - shares.calls_bytes;
  return shares;
}

}  // namespace dcp::server
