// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/block_pool.h"

#include <optional>

#include "dcp/base/bytes.h"
#include "dcp/base/check.h"

namespace dcp {

Block::Block(Block&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      data_(std::exchange(other.data_, nullptr)) {}

Block& Block::operator=(Block&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(data_, other.data_);
  Block gone(std::move(other));  // the block held so far goes back now
  return *this;
}

Block::~Block() {
  // Stays within the capacity reserved at the start, so it never allocates.
  if (data_ != nullptr) pool_->free_.push_back(data_);
}

BlockPool::BlockPool(uint64_t num_blocks, uint64_t block_bytes,
                     std::pmr::memory_resource* resource)
    : num_blocks_(num_blocks), block_bytes_(block_bytes), resource_(resource) {
  const std::optional<uint64_t> bytes = CheckedMul(num_blocks, block_bytes);
  DCP_CHECK(num_blocks > 0 && bytes.has_value(), "num_blocks=", num_blocks);
  DCP_CHECK(block_bytes > 0 && block_bytes % kBlockBytes == 0,
            "block_bytes=", block_bytes);
  memory_ =
      static_cast<uint8_t*>(resource_->allocate(*bytes, kMaxDirectAlignment));
  free_.reserve(num_blocks);
  // The block that came back last goes out first, while it is in the cache; at
  // the start the lowest one goes out first.
  for (uint64_t i = num_blocks; i > 0; --i) {
    free_.push_back(memory_ + (i - 1) * block_bytes_);
  }
}

BlockPool::~BlockPool() {
  DCP_CHECK(free_.size() == num_blocks_, "free=", free_.size(), " of ",
            num_blocks_);
  resource_->deallocate(memory_, num_blocks_ * block_bytes_,
                        kMaxDirectAlignment);
}

Block BlockPool::TryAcquire() {
  if (free_.empty()) return Block();
  uint8_t* data = free_.back();
  free_.pop_back();
  return Block(this, data);
}

std::span<uint8_t> BlockPool::memory() const {
  return {memory_, num_blocks_ * block_bytes_};
}

}  // namespace dcp
