// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/interval_list.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "dcp/base/check.h"

namespace dcp {

IntervalList::IntervalList(std::vector<int64_t> begins,
                           std::vector<int64_t> ends)
    : begins_(std::move(begins)),
      num_leaves_(std::bit_ceil(std::max<size_t>(ends.size(), 1))),
      max_end_(2 * num_leaves_, std::numeric_limits<int64_t>::min()) {
  DCP_CHECK(begins_.size() == ends.size(), "begins and ends differ");
  std::copy(ends.begin(), ends.end(),
            max_end_.begin() + static_cast<std::ptrdiff_t>(num_leaves_));
  for (size_t node = num_leaves_; node-- > 1;) {
    max_end_[node] = std::max(max_end_[2 * node], max_end_[2 * node + 1]);
  }
}

size_t IntervalList::FirstBeginningAtOrAfter(size_t first, size_t last,
                                             int64_t value) const {
  const auto begin = begins_.begin();
  return static_cast<size_t>(
      std::lower_bound(begin + static_cast<std::ptrdiff_t>(first),
                       begin + static_cast<std::ptrdiff_t>(last), value) -
      begin);
}

size_t IntervalList::FirstEndingAfter(size_t first, size_t last,
                                      int64_t value) const {
  if (first >= last) return last;
  // Climb to the first subtree to the right of the part searched so far...
  size_t node = num_leaves_ + first;
  while (max_end_[node] <= value) {
    while (node % 2 == 1) node /= 2;  // a right child: done with the parent
    if (node == 0) return last;       // climbed past the root
    ++node;
  }
  // ... and descend to the first leaf there.
  while (node < num_leaves_) {
    node *= 2;
    if (max_end_[node] <= value) ++node;
  }
  return std::min(node - num_leaves_, last);
}

}  // namespace dcp
