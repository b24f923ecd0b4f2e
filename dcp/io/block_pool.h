// SPDX-License-Identifier: Apache-2.0
// The memory budget: a fixed number of equal Blocks, allocated at once and
// handed out. All payload memory in the system is in such blocks. A block's
// pages are touched only on first use. A pool belongs to one lane at a time,
// that is, to one thread; it may serve many transfers, one after the other.
#ifndef DCP_IO_BLOCK_POOL_H_
#define DCP_IO_BLOCK_POOL_H_

#include <cstdint>
#include <memory_resource>
#include <span>
#include <utility>
#include <vector>

#include "dcp/base/limits.h"

namespace dcp {

class BlockPool;

// Move-only; the destructor gives the memory back to the pool. Aligned to
// kMaxDirectAlignment. Must not outlive the pool.
class Block {
 public:
  Block() = default;
  Block(Block&& other) noexcept;
  Block& operator=(Block&& other) noexcept;
  ~Block();

  explicit operator bool() const { return data_ != nullptr; }
  uint8_t* data() const { return data_; }
  uint64_t size() const;

 private:
  friend class BlockPool;
  Block(BlockPool* pool, uint8_t* data) : pool_(pool), data_(data) {}

  BlockPool* pool_ = nullptr;
  uint8_t* data_ = nullptr;
};

class BlockPool {
 public:
  // Takes `num_blocks` blocks of `block_bytes`, a multiple of kBlockBytes, from
  // `resource`, which outlives the pool.
  explicit BlockPool(
      uint64_t num_blocks, uint64_t block_bytes = kBlockBytes,
      std::pmr::memory_resource* resource = std::pmr::new_delete_resource());
  ~BlockPool();  // all Blocks must be back
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  uint64_t num_blocks() const { return num_blocks_; }
  uint64_t block_bytes() const { return block_bytes_; }
  uint64_t num_free() const { return free_.size(); }
  Block TryAcquire();  // empty when none is free

  // The whole region, for registration with the kernel.
  std::span<uint8_t> memory() const;

 private:
  friend class Block;

  uint64_t num_blocks_;
  uint64_t block_bytes_;
  std::pmr::memory_resource* resource_;
  uint8_t* memory_;
  std::vector<uint8_t*> free_;
};

inline uint64_t Block::size() const { return pool_->block_bytes(); }

}  // namespace dcp

#endif  // DCP_IO_BLOCK_POOL_H_
