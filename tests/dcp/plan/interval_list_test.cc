// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/interval_list.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/dcp/plan/random.h"

namespace dcp {
namespace {

TEST(IntervalList, EmptyListHasNoAnswer) {
  const IntervalList list;
  EXPECT_EQ(list.FirstBeginningAtOrAfter(0, 0, 5), 0u);
  EXPECT_EQ(list.FirstEndingAfter(0, 0, 5), 0u);
}

TEST(IntervalList, AnswersAsALoopDoes) {
  testing::Random random;
  for (int round = 0; round < 200; ++round) {
    const auto size = static_cast<size_t>(random.Uniform(1, 40));
    std::vector<int64_t> begins(size);
    std::vector<int64_t> ends(size);
    for (int64_t& begin : begins) begin = random.Uniform(0, 30);
    std::sort(begins.begin(), begins.end());
    for (size_t i = 0; i < size; ++i) {
      ends[i] = begins[i] + random.Uniform(0, 20);
    }
    const IntervalList list(begins, ends);
    const auto bound = static_cast<int64_t>(size);
    for (int query = 0; query < 50; ++query) {
      const auto last = static_cast<size_t>(random.Uniform(0, bound));
      const auto first =
          static_cast<size_t>(random.Uniform(0, static_cast<int64_t>(last)));
      const int64_t value = random.Uniform(-1, 52);
      size_t before = first;
      while (before < last && begins[before] < value) ++before;
      EXPECT_EQ(list.FirstBeginningAtOrAfter(first, last, value), before);
      size_t after = first;
      while (after < last && ends[after] <= value) ++after;
      EXPECT_EQ(list.FirstEndingAfter(first, last, value), after);
    }
  }
}

}  // namespace
}  // namespace dcp
