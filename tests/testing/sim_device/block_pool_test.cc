// SPDX-License-Identifier: Apache-2.0
// The pool follows the rules of CUDA's caching allocator.
#include "tests/testing/sim_device/block_pool.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>

#include "gtest/gtest.h"

namespace sim {
namespace {

constexpr size_t kStream = 1;

class Memory {
 public:
  Block Take(size_t bytes, size_t stream = kStream) {
    if (pool.HasFree(stream, bytes)) return pool.TakeFree(stream, bytes);
    const uintptr_t begin = next_;
    next_ += BlockPool::SegmentBytes(bytes);
    return pool.TakeFrom(begin, stream, bytes);
  }

  BlockPool pool;

 private:
  uintptr_t next_ = 1 << 30;
};

TEST(BlockPool, SmallBlocksShareASegmentOf2MiB) {
  Memory memory;
  const Block first = memory.Take(1);
  const Block second = memory.Take(513);
  EXPECT_EQ(first.size, 512u);
  EXPECT_EQ(second.size, 1024u);
  EXPECT_EQ(second.begin, first.end());
  EXPECT_EQ(memory.pool.stats().reserved, 2 << 20);
  EXPECT_EQ(memory.pool.stats().allocated, 1536);
}

TEST(BlockPool, LargeBlocksAreCutFromSegmentsOf20MiB) {
  Memory memory;
  memory.Take(size_t{2} << 20);
  EXPECT_EQ(memory.pool.stats().reserved, 20 << 20);
  memory.Take(size_t{11} << 20);
  EXPECT_EQ(memory.pool.stats().reserved, 20 << 20) << "the rest has 18 MiB";
  memory.Take(size_t{11} << 20);
  EXPECT_EQ(memory.pool.stats().reserved, 32 << 20) << "rounded up to 2 MiB";
}

TEST(BlockPool, ARestOf1MiBIsNotSplitOff) {
  Memory memory;
  const Block block = memory.Take((size_t{19} << 20) + 512);
  EXPECT_EQ(block.size, size_t{20} << 20);
}

TEST(BlockPool, FreeNeighboursAreJoined) {
  Memory memory;
  const Block a = memory.Take(512);
  const Block b = memory.Take(512);
  const Block c = memory.Take(512);
  memory.pool.Free(a.begin);
  memory.pool.Free(c.begin);
  memory.pool.Free(b.begin);
  EXPECT_EQ(memory.pool.TakeEmptySegments().size(), 1u);
  EXPECT_EQ(memory.pool.stats().reserved, 0);
}

TEST(BlockPool, AnotherStreamDoesNotGetTheMemory) {
  Memory memory;
  const Block block = memory.Take(512);
  memory.pool.Free(block.begin);
  EXPECT_NE(memory.Take(512, kStream + 1).begin, block.begin);
  EXPECT_EQ(memory.Take(512).begin, block.begin);
}

TEST(BlockPool, BlocksInUseNeverOverlap) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  Memory memory;
  std::map<uintptr_t, Block> used;
  int64_t total = 0;
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2 == 0 && !used.empty()) {
      auto it = used.begin();
      std::advance(it, static_cast<int64_t>(random() % used.size()));
      total -= static_cast<int64_t>(it->second.size);
      memory.pool.Free(it->first);
      used.erase(it);
    } else {
      const size_t bytes = 1 + random() % (size_t{1} << (random() % 24));
      const Block block = memory.Take(bytes, 1 + random() % 2);
      ASSERT_GE(block.size, bytes);
      const auto next = used.lower_bound(block.begin);
      if (next != used.end()) ASSERT_LE(block.end(), next->first);
      if (next != used.begin()) {
        ASSERT_LE(std::prev(next)->second.end(), block.begin);
      }
      total += static_cast<int64_t>(block.size);
      used[block.begin] = block;
    }
    ASSERT_EQ(memory.pool.stats().allocated, total);
    ASSERT_LE(total, memory.pool.stats().reserved);
  }
}

}  // namespace
}  // namespace sim
