// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/strided/cuts.h"

#include <algorithm>
#include <cstddef>

#include "dcp/base/bytes.h"

namespace dcp {
namespace {

class RangeCutter {
 public:
  RangeCutter(absl::Span<const Digit> digits, NumberRange range,
              absl::FunctionRef<bool(absl::Span<const DigitRange>)> visit)
      : digits_(digits),
        range_(range),
        visit_(visit),
        reach_(digits.size() + 1, 0),
        box_(digits.size()) {
    for (size_t i = digits.size(); i-- > 0;) {
      reach_[i] = reach_[i + 1] + (digits[i].count - 1) * digits[i].step;
    }
  }

  // Cuts the digits from `level` on; `base` is the earlier digits' value.
  bool Cut(size_t level, uint64_t base) {
    if (base >= range_.high || base + reach_[level] < range_.low) return true;
    if (base >= range_.low && base + reach_[level] < range_.high) {
      return VisitWhole(level);
    }
    // Some numbers lie outside, so this digit counts: the step is not 0.
    const uint64_t step = digits_[level].step;
    const uint64_t reach = reach_[level + 1];
    // The values for which some numbers lie in the range, and those for which
    // all do.
    const uint64_t first = ValuesBelow(base + reach, step, range_.low);
    const uint64_t end =
        std::min(digits_[level].count, ValuesBelow(base, step, range_.high));
    const uint64_t whole_first =
        std::clamp(ValuesBelow(base, step, range_.low), first, end);
    const uint64_t whole_end =
        std::min(end, ValuesBelow(base + reach, step, range_.high));
    if (whole_first >= whole_end) return CutEach(level, base, first, end);
    if (!CutEach(level, base, first, whole_first)) return false;
    box_[level] = {.first = whole_first, .count = whole_end - whole_first};
    return VisitWhole(level + 1) && CutEach(level, base, whole_end, end);
  }

 private:
  // How many values there are for which start + value * step < bound.
  static uint64_t ValuesBelow(uint64_t start, uint64_t step, uint64_t bound) {
    return bound > start ? DivideUp(bound - start, step) : 0;
  }

  // All values for the digits from `level` on.
  bool VisitWhole(size_t level) {
    for (size_t i = level; i < digits_.size(); ++i) {
      box_[i] = {.first = 0, .count = digits_[i].count};
    }
    return visit_(box_);
  }

  // Each digit value in [first, end) separately.
  bool CutEach(size_t level, uint64_t base, uint64_t first, uint64_t end) {
    for (uint64_t value = first; value < end; ++value) {
      box_[level] = {.first = value, .count = 1};
      if (!Cut(level + 1, base + value * digits_[level].step)) return false;
    }
    return true;
  }

  const absl::Span<const Digit> digits_;
  const NumberRange range_;
  const absl::FunctionRef<bool(absl::Span<const DigitRange>)> visit_;
  // For each digit, the maximum value from there on.
  absl::InlinedVector<uint64_t, 10> reach_;
  absl::InlinedVector<DigitRange, 9> box_;
};

}  // namespace

bool ForEachCut(uint64_t base, absl::Span<const Digit> digits,
                NumberRange range,
                absl::FunctionRef<bool(absl::Span<const DigitRange>)> visit) {
  if (range.low >= range.high) return true;
  return RangeCutter(digits, range, visit).Cut(0, base);
}

}  // namespace dcp
