// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/block_pool.h"

#include <cstdint>
#include <memory_resource>
#include <set>
#include <utility>
#include <vector>

#include "dcp/base/limits.h"
#include "gtest/gtest.h"

namespace dcp {
namespace {

TEST(BlockPool, HandsOutEachBlockOnceAndAligned) {
  BlockPool pool(3);
  std::set<uint8_t*> seen;
  std::vector<Block> held;
  while (Block block = pool.TryAcquire()) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data()) % kMaxDirectAlignment,
              0u);
    EXPECT_GE(block.data(), pool.memory().data());
    EXPECT_LE(block.data() + block.size(),
              pool.memory().data() + pool.memory().size());
    seen.insert(block.data());
    held.push_back(std::move(block));
  }
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_EQ(pool.num_free(), 0u);
  EXPECT_FALSE(pool.TryAcquire());
}

TEST(BlockPool, TakesABlockBackWhenItIsDestroyed) {
  BlockPool pool(1);
  uint8_t* data;
  {
    const Block block = pool.TryAcquire();
    data = block.data();
    EXPECT_EQ(pool.num_free(), 0u);
  }
  EXPECT_EQ(pool.num_free(), 1u);
  EXPECT_EQ(pool.TryAcquire().data(), data);
}

TEST(BlockPool, MovingABlockMovesTheOwnership) {
  BlockPool pool(2);
  Block a = pool.TryAcquire();
  Block b = pool.TryAcquire();
  uint8_t* data = b.data();
  a = std::move(b);  // the previous block goes back now
  EXPECT_EQ(pool.num_free(), 1u);
  EXPECT_EQ(a.data(), data);
  EXPECT_FALSE(b);  // NOLINT(bugprone-use-after-move): empty, as documented
  a = Block();
  EXPECT_EQ(pool.num_free(), 2u);
}

// Counts the bytes that it passes on.
class CountingResource final : public std::pmr::memory_resource {
 public:
  uint64_t num_bytes = 0;

 private:
  void* do_allocate(size_t bytes, size_t alignment) override {
    num_bytes += bytes;
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  void do_deallocate(void* memory, size_t bytes, size_t alignment) override {
    num_bytes -= bytes;
    std::pmr::new_delete_resource()->deallocate(memory, bytes, alignment);
  }
  bool do_is_equal(
      const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }
};

TEST(BlockPool, TakesMemoryFromTheResourceAndReturnsIt) {
  CountingResource resource;
  {
    BlockPool pool(5, 2 * kBlockBytes, &resource);
    EXPECT_EQ(resource.num_bytes, 10 * kBlockBytes);
    EXPECT_EQ(pool.memory().size(), 10 * kBlockBytes);
    EXPECT_EQ(pool.TryAcquire().size(), 2 * kBlockBytes);
  }
  EXPECT_EQ(resource.num_bytes, 0u);
}

}  // namespace
}  // namespace dcp
