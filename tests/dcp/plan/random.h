// SPDX-License-Identifier: Apache-2.0
// Shared by the random tests of plans: a generator with a seed that is printed
// and set by --gtest_random_seed, and random shapes, boxes and tilings. One
// thread.
#ifndef TESTS_DCP_PLAN_RANDOM_H_
#define TESTS_DCP_PLAN_RANDOM_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <random>
#include <vector>

#include "dcp/tensor/box.h"
#include "gtest/gtest.h"

namespace dcp::testing {

class Random {
 public:
  Random() : Random(static_cast<uint64_t>(GTEST_FLAG_GET(random_seed))) {}

  // Both ends included.
  int64_t Uniform(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(generator_);
  }

  Dims Shape(int64_t max_dims, int64_t max_size) {
    Dims shape(static_cast<size_t>(Uniform(0, max_dims)), 0);
    for (int64_t& size : shape) size = Uniform(1, max_size);
    return shape;
  }

  // A part of `box`; it is empty only if the box is.
  Box BoxInside(const Box& box) {
    Box part = box;
    for (size_t d = 0; d < box.sizes.size(); ++d) {
      if (box.sizes[d] == 0) continue;
      const int64_t skip = Uniform(0, box.sizes[d] - 1);
      part.offsets[d] += skip;
      part.sizes[d] = Uniform(1, box.sizes[d] - skip);
    }
    return part;
  }

  // Cuts the tensor into boxes, in random order, by cutting a random box
  // `num_cuts` times.
  std::vector<Box> Tiling(const Dims& shape, int64_t num_cuts) {
    std::vector<Box> boxes = {WholeBox(shape)};
    for (int64_t cut = 0; cut < num_cuts && !shape.empty(); ++cut) {
      const auto i = static_cast<size_t>(
          Uniform(0, static_cast<int64_t>(boxes.size()) - 1));
      const auto d = static_cast<size_t>(
          Uniform(0, static_cast<int64_t>(shape.size()) - 1));
      Box rest = boxes[i];
      // Sometimes at the end, which leaves an empty box.
      const int64_t size =
          Uniform(std::min<int64_t>(1, rest.sizes[d]), rest.sizes[d]);
      boxes[i].sizes[d] = size;
      rest.offsets[d] += size;
      rest.sizes[d] -= size;
      boxes.push_back(rest);
    }
    std::shuffle(boxes.begin(), boxes.end(), generator_);
    return boxes;
  }

 private:
  explicit Random(uint64_t seed) : generator_(seed) {
    std::cerr << "seed " << seed << " (set it by --gtest_random_seed)\n";
  }

  std::mt19937_64 generator_;
};

}  // namespace dcp::testing

#endif  // TESTS_DCP_PLAN_RANDOM_H_
