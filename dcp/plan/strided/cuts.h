// SPDX-License-Identifier: Apache-2.0
// Cuts: the part of a mixed-radix number that lies in an interval. The indices
// that nested loops visit are such numbers, so the same few lines cut a piece
// by a box, an output block, and a read. Pure; any thread.
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

// A digit's values from `first` to first + count - 1.
struct DigitRange {
  uint64_t first = 0;
  uint64_t count = 1;
};

// The numbers in [low, high).
struct NumberRange {
  uint64_t low = 0;
  uint64_t high = 0;
};

// Calls `visit` with digit boxes, one range per digit, which together are all
// combinations with a number, base + the sum of value * step, in `range`. Ends
// early when `visit` returns false, which is then the result. Digits come by
// falling step, with no count of 0, and the greatest number fits into 64 bits.
//
// If each step is larger than all later digits can reach together, as in a
// decimal number, the boxes come in rising order, and k digits have at most 2k
// - 1 boxes: at each digit, whole values in the middle, and one value at either
// end that depends on the later digits. Otherwise, as in a tensor with rows
// that overlap in memory, the boxes are still disjoint and complete, but may be
// as many as there are combinations of all digits except the last.
bool ForEachCut(
    uint64_t base, absl::Span<const Digit> digits, NumberRange range,
    absl::FunctionRef<bool(absl::Span<const DigitRange> box)> visit);

}  // namespace dcp

#endif  // DCP_PLAN_STRIDED_CUTS_H_
