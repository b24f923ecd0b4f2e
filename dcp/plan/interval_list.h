// IntervalList: half-open intervals sorted by where they begin, to be asked
// which of them meet a given one without touching the others. Any stretch of
// the list can be asked, so that one object holds the lists of many groups.
// Holds numbers only. Pure; thread-safe once built.
#ifndef DCP_PLAN_INTERVAL_LIST_H_
#define DCP_PLAN_INTERVAL_LIST_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dcp {

class IntervalList {
 public:
  IntervalList() = default;  // to be assigned to; not to be asked

  // begins[i] to ends[i], equally many.
  IntervalList(std::vector<int64_t> begins, std::vector<int64_t> ends);

  // The end of the stretch of intervals [first, last) that begin before
  // `value`; they are sorted by their begin.
  size_t EndOfThoseBefore(size_t first, size_t last, int64_t value) const;

  // The first interval in [first, last) that ends after `value`, or `last`.
  // O(log(last - first)), whatever the order of the ends.
  size_t FirstEndingAfter(size_t first, size_t last, int64_t value) const;

 private:
  std::vector<int64_t> begins_;
  // A complete binary tree in an array: the node n has children 2n and 2n+1,
  // the leaves, from num_leaves_ on, are the ends; a node has the maximum of
  // its children.
  size_t num_leaves_ = 1;
  std::vector<int64_t> max_end_;
};

}  // namespace dcp

#endif  // DCP_PLAN_INTERVAL_LIST_H_
