// SPDX-License-Identifier: Apache-2.0
// BlockPool: which bytes on a device belong to which tensor, by the rules of
// CUDA's caching allocator. Sizes are rounded up to 512 bytes. Small blocks (at
// most 1 MiB) are cut from 2 MiB segments, larger ones from 20 MiB segments or
// from a segment that holds only them. A free block is taken by best fit, from
// segments that were made for the same stream, and is split, and joined with
// free neighbours. It hands out addresses and touches no memory. Guarded by the
// simulation's mutex.
//
// Source: c10/cuda/CUDACachingAllocator.cpp of PyTorch, with its default
// options.
#ifndef TESTS_TESTING_SIM_DEVICE_BLOCK_POOL_H_
#define TESTS_TESTING_SIM_DEVICE_BLOCK_POOL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace sim {

struct MemoryStats {
  int64_t allocated = 0;  // bytes in blocks in use
  int64_t peak = 0;       // the largest `allocated` since ResetPeak
  int64_t reserved = 0;   // bytes in segments
  int64_t num_segments = 0;
};

// Addresses on a device.
struct Block {
  uintptr_t begin = 0;
  size_t size = 0;  // rounded up
  uintptr_t end() const { return begin + size; }
};

class BlockPool {
 public:
  // A pool: one stream's blocks in one size class.
  struct Key {
    size_t stream;  // the stream's actor
    bool is_small;
    auto operator<=>(const Key&) const = default;
  };
  static Key KeyFor(size_t stream, size_t bytes) {
    return {stream, RoundUp(bytes) <= kSmallBytes};
  }
  static size_t RoundUp(size_t bytes) { return (bytes + 511) / 512 * 512; }

  // Whether the stream has a free block for the allocation; takes it.
  bool HasFree(size_t stream, size_t bytes);
  Block TakeFree(size_t stream, size_t bytes);
  // The segment size that an allocation needs.
  static size_t SegmentBytes(size_t bytes);
  // Takes a block from a new segment [begin, begin + SegmentBytes(bytes)).
  Block TakeFrom(uintptr_t begin, size_t stream, size_t bytes);
  // Returns the block's pool.
  Key Free(uintptr_t begin);
  // The block in use that begins there; the pool for which it was made.
  Block At(uintptr_t begin) const { return {begin, pieces_.at(begin).size}; }
  Key KeyAt(uintptr_t begin) const { return pieces_.at(begin).key; }
  // The first byte of the block in use around `address`.
  std::optional<uintptr_t> BlockAt(uintptr_t address) const;
  // Removes the segments without a block in use; returns each [begin, end).
  std::vector<std::pair<uintptr_t, uintptr_t>> TakeEmptySegments();

  const MemoryStats& stats() const { return stats_; }
  void ResetPeak() { stats_.peak = stats_.allocated; }

 private:
  static constexpr size_t kSmallBytes = size_t{1} << 20;

  struct Piece {
    size_t size;
    uintptr_t segment;
    Key key;
    bool in_use;
  };
  // By size, then by address, as CUDA's allocator orders them.
  using FreeBlocks = std::set<std::pair<size_t, uintptr_t>>;

  Block Take(uintptr_t begin, size_t bytes);

  std::map<uintptr_t, Piece> pieces_;     // by first byte
  std::map<uintptr_t, size_t> segments_;  // sizes by first byte
  std::map<Key, FreeBlocks> free_;
  MemoryStats stats_;
};

}  // namespace sim

#endif  // TESTS_TESTING_SIM_DEVICE_BLOCK_POOL_H_
