// SPDX-License-Identifier: Apache-2.0
// Cuts: which part of a mixed-radix number lies in an interval. The indices
// that a nest of loops visits are such numbers, so the same few lines cut a
// piece by a box, a block of output, and a read. Pure; any thread.
#ifndef DCP_PLAN_STRIDED_CUTS_H_
#define DCP_PLAN_STRIDED_CUTS_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"

namespace dcp {

// A digit with values from 0 to count - 1, each of which is worth `step`.
struct Digit {
  uint64_t count = 1;
  uint64_t step = 0;
};
using Digits = absl::InlinedVector<Digit, 9>;

// The values from `first` to first + count - 1 of a digit.
struct DigitRange {
  uint64_t first = 0;
  uint64_t count = 1;
};

// The numbers in [low, high).
struct NumberRange {
  uint64_t low = 0;
  uint64_t high = 0;
};

// Calls `visit` with boxes of digits, one range per digit, which together are
// all those whose number, base + the sum of value * step, lies in `range`. Ends
// early when `visit` returns false, which is then the result. Digits come by
// falling step, with no count of 0, and the greatest number fits into 64 bits.
//
// If each step is larger than what all later digits can reach together, as with
// the digits of a number, the boxes come in rising order, and k digits have at
// most 2k - 1 of them: at each digit, whole values in the middle, and one value
// at either end of which the later digits decide. Otherwise, as in a tensor
// whose rows overlap in memory, the boxes are still disjoint and complete, but
// may be as many as there are combinations of all digits except the last.
bool ForEachCut(
    uint64_t base, absl::Span<const Digit> digits, NumberRange range,
    absl::FunctionRef<bool(absl::Span<const DigitRange> box)> visit);

}  // namespace dcp

#endif  // DCP_PLAN_STRIDED_CUTS_H_
