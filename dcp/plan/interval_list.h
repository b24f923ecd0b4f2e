// SPDX-License-Identifier: Apache-2.0
// IntervalList: half-open intervals sorted by their begins. It finds the
// intervals that overlap a given one without visiting the others. Queries name
// a stretch of the list, so that one object can hold several groups' lists. It
// holds only numbers. Pure; thread-safe once built.
#ifndef DCP_PLAN_INTERVAL_LIST_H_
#define DCP_PLAN_INTERVAL_LIST_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dcp {

class IntervalList {
 public:
  IntervalList() = default;  // may be assigned to, not queried

  // The intervals [begins[i], ends[i]); both vectors have the same length.
  IntervalList(std::vector<int64_t> begins, std::vector<int64_t> ends);

  // The end of the intervals in [first, last) that begin before `value`. The
  // stretch is sorted by the begins.
  size_t FirstBeginningAtOrAfter(size_t first, size_t last,
                                 int64_t value) const;

  // The first interval in [first, last) that ends after `value`, or `last`.
  // O(log(last - first)), even if the ends are not sorted.
  size_t FirstEndingAfter(size_t first, size_t last, int64_t value) const;

 private:
  std::vector<int64_t> begins_;
  // A complete binary tree in an array: node n has the children 2n and 2n+1;
  // the leaves, from num_leaves_ on, are the ends; each node holds the
  // children's maximum.
  size_t num_leaves_ = 1;
  std::vector<int64_t> max_end_;
};

}  // namespace dcp

#endif  // DCP_PLAN_INTERVAL_LIST_H_
