// SPDX-License-Identifier: Apache-2.0
// Extents against sets of bytes.
#include "tests/testing/sim_device/extent.h"

#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace sim {
namespace {

struct View {
  uintptr_t begin;
  std::vector<int64_t> sizes, strides;
  size_t element_bytes;

  Extent extent() const {
    return {reinterpret_cast<const void*>(begin), sizes, strides,
            element_bytes};
  }
  std::set<uintptr_t> bytes() const {
    std::set<uintptr_t> firsts{begin};
    for (size_t i = 0; i < sizes.size(); ++i) {
      std::set<uintptr_t> next;
      for (const uintptr_t first : firsts) {
        for (int64_t k = 0; k < sizes[i]; ++k) {
          next.insert(first +
                      static_cast<uintptr_t>(k * strides[i]) * element_bytes);
        }
      }
      firsts = next;
    }
    std::set<uintptr_t> all;
    for (const uintptr_t first : firsts) {
      for (size_t i = 0; i < element_bytes; ++i) all.insert(first + i);
    }
    return all;
  }
};

TEST(Extent, NeighbouringColumnsDoNotOverlap) {
  const View left{
      .begin = 4096, .sizes = {8, 3}, .strides = {6, 1}, .element_bytes = 4};
  View right = left;
  right.begin += 12;
  EXPECT_FALSE(left.extent().Overlaps(right.extent()));
  right.begin -= 4;
  EXPECT_TRUE(left.extent().Overlaps(right.extent()));
}

TEST(Extent, OverlapsWhenBytesDo) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto draw = [&random](int64_t below) {
    return std::uniform_int_distribution<int64_t>(0, below - 1)(random);
  };
  const auto view = [&] {
    // Takes a part of a contiguous tensor's dimensions.
    View made{.begin = 4096 + static_cast<uintptr_t>(draw(64)),
              .sizes = {},
              .strides = {},
              .element_bytes = size_t{1} << draw(3)};
    int64_t stride = 1;
    for (int64_t i = draw(4); i-- > 0;) {
      const int64_t whole = 1 + draw(4);
      made.sizes.insert(made.sizes.begin(), 1 + draw(whole));
      made.strides.insert(made.strides.begin(), stride);
      stride *= whole;
    }
    return made;
  };
  for (int i = 0; i < 20000; ++i) {
    const View a = view();
    const View b = view();
    const std::set<uintptr_t> in_a = a.bytes();
    const std::set<uintptr_t> in_b = b.bytes();
    bool shared = false;
    bool all_of_b = true;
    for (const uintptr_t byte : in_b) {
      shared |= in_a.count(byte) != 0;
      all_of_b &= in_a.count(byte) != 0;
    }
    ASSERT_EQ(a.extent().Overlaps(b.extent()), shared) << i;
    ASSERT_EQ(b.extent().Overlaps(a.extent()), shared) << i;
    if (a.extent().Covers(b.extent())) ASSERT_TRUE(all_of_b) << i;
    ASSERT_EQ(a.extent().begin(), *in_a.begin());
    ASSERT_EQ(a.extent().end(), *in_a.rbegin() + 1);
  }
}

TEST(Extent, AnEmptyViewOverlapsNothing) {
  const Extent empty(reinterpret_cast<const void*>(4096), {0, 3}, {3, 1}, 4);
  EXPECT_TRUE(empty.empty());
  EXPECT_FALSE(empty.Overlaps({0, 1 << 20}));
}

}  // namespace
}  // namespace sim
