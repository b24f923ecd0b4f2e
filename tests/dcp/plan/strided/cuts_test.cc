// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/strided/cuts.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/dcp/plan/random.h"

namespace dcp {
namespace {

using Numbers = std::vector<uint64_t>;

// The numbers in a box of digits, in digit order.
Numbers BoxNumbers(uint64_t base, absl::Span<const Digit> digits,
                   absl::Span<const DigitRange> box) {
  Numbers numbers = {base};
  for (size_t i = 0; i < digits.size(); ++i) {
    Numbers stepped;
    for (const uint64_t number : numbers) {
      for (uint64_t v = 0; v < box[i].count; ++v) {
        stepped.push_back(number + (box[i].first + v) * digits[i].step);
      }
    }
    numbers = stepped;
  }
  return numbers;
}

Numbers AllNumbers(uint64_t base, const Digits& digits) {
  std::vector<DigitRange> all;
  for (const Digit& digit : digits) all.push_back({0, digit.count});
  return BoxNumbers(base, digits, all);
}

// A number's digits, some with gaps behind them.
Digits RandomDigits(testing::Random& random) {
  Digits digits;
  uint64_t reach = 0;
  for (int64_t i = random.Uniform(0, 5); i > 0; --i) {
    const Digit digit{
        .count = static_cast<uint64_t>(random.Uniform(1, 5)),
        .step = reach + 1 + static_cast<uint64_t>(random.Uniform(0, 2))};
    digits.insert(digits.begin(), digit);
    reach += (digit.count - 1) * digit.step;
  }
  return digits;
}

struct Cut {
  Numbers numbers;  // in box order
  size_t num_boxes = 0;
};

Cut CutBy(uint64_t base, const Digits& digits, NumberRange range) {
  Cut cut;
  EXPECT_TRUE(
      ForEachCut(base, digits, range, [&](absl::Span<const DigitRange> box) {
        for (const uint64_t number : BoxNumbers(base, digits, box)) {
          cut.numbers.push_back(number);
        }
        ++cut.num_boxes;
        return true;
      }));
  return cut;
}

Numbers Filtered(const Numbers& numbers, NumberRange range) {
  Numbers inside;
  for (const uint64_t number : numbers) {
    if (number >= range.low && number < range.high) inside.push_back(number);
  }
  return inside;
}

TEST(Cuts, HoldTheNumbersInTheRangeInOrder) {
  testing::Random random;
  for (int round = 0; round < 5000; ++round) {
    const Digits digits = RandomDigits(random);
    const auto base = static_cast<uint64_t>(random.Uniform(0, 10));
    const Numbers all = AllNumbers(base, digits);
    const auto low = static_cast<uint64_t>(
        random.Uniform(0, static_cast<int64_t>(all.back()) + 2));
    const auto high = static_cast<uint64_t>(random.Uniform(
        static_cast<int64_t>(low), static_cast<int64_t>(all.back()) + 4));
    const Cut cut = CutBy(base, digits, {low, high});
    ASSERT_EQ(cut.numbers, Filtered(all, {low, high}));
    if (!digits.empty()) {
      EXPECT_LE(cut.num_boxes, 2 * digits.size() - 1);
    }
  }
}

// As in a view with rows that overlap in memory, or are all the same.
TEST(Cuts, AreCompleteForOverlappingDigits) {
  testing::Random random;
  for (int round = 0; round < 2000; ++round) {
    Digits digits;
    uint64_t step = 0;
    for (int64_t i = random.Uniform(1, 4); i > 0; --i) {
      step += static_cast<uint64_t>(random.Uniform(0, 3));
      digits.insert(digits.begin(),
                    {static_cast<uint64_t>(random.Uniform(1, 5)), step});
    }
    const NumberRange range{static_cast<uint64_t>(random.Uniform(0, 20)),
                            static_cast<uint64_t>(random.Uniform(0, 40))};
    Numbers found = CutBy(3, digits, range).numbers;
    Numbers expected = Filtered(AllNumbers(3, digits), range);
    std::sort(found.begin(), found.end());
    std::sort(expected.begin(), expected.end());
    ASSERT_EQ(found, expected);
  }
}

TEST(Cuts, EndWhenTheVisitorReturnsFalse) {
  int num_calls = 0;
  EXPECT_FALSE(ForEachCut(
      0, Digits{{3, 10}, {5, 1}}, {3, 22},
      [&](absl::Span<const DigitRange>) { return ++num_calls < 2; }));
  EXPECT_EQ(num_calls, 2);
}

// Two heads with 128 rows and a part of a third.
TEST(Cuts, WholeHeadsAreOneBox) {
  const Digits heads{{32, 128}, {128, 1}};
  EXPECT_EQ(CutBy(0, heads, {128, 384}).num_boxes, 1u);
  EXPECT_EQ(CutBy(0, heads, {128, 400}).num_boxes, 2u);
  EXPECT_EQ(CutBy(0, heads, {100, 400}).num_boxes, 3u);
}

}  // namespace
}  // namespace dcp
