// SPDX-License-Identifier: Apache-2.0

#include "dcp/tensor/flat_boxes.h"

#include <cstddef>

#include "dcp/base/check.h"

namespace dcp {
namespace {

// Adds a range's boxes to a list.
class Cutter {
 public:
  Cutter(absl::Span<const int64_t> shape, std::vector<FlatBox>& boxes)
      : shape_(shape), boxes_(boxes) {}

  // Adds [begin, end) in the block that `prefix` selects in the leading
  // dimensions. The range is not empty.
  void Cut(Dims& prefix, int64_t begin, int64_t end) {
    const size_t dim = prefix.size();
    if (dim + 1 >= shape_.size()) {
      Add(prefix, begin, end);
      return;
    }
    const int64_t row = Volume(shape_.subspan(dim + 1));
    int64_t first = begin / row;
    const int64_t last = end / row;
    const int64_t head = begin % row;
    const int64_t tail = end % row;
    if (first == last) {
      CutRow(prefix, first, head, tail);
      return;
    }
    if (head > 0) CutRow(prefix, first++, head, row);
    if (first < last) Add(prefix, first, last);
    if (tail > 0) CutRow(prefix, last, 0, tail);
  }

 private:
  void CutRow(Dims& prefix, int64_t index, int64_t begin, int64_t end) {
    prefix.push_back(index);
    Cut(prefix, begin, end);
    prefix.pop_back();
  }

  // Adds the indices [begin, end) in the dimension after `prefix`, with all
  // elements in the dimensions after it.
  void Add(const Dims& prefix, int64_t begin, int64_t end) {
    FlatBox& added = boxes_.emplace_back();
    added.offset = size_;
    for (const int64_t index : prefix) {
      added.box.offsets.push_back(index);
      added.box.sizes.push_back(1);
    }
    for (size_t d = prefix.size(); d < shape_.size(); ++d) {
      const bool cut = d == prefix.size();
      added.box.offsets.push_back(cut ? begin : 0);
      added.box.sizes.push_back(cut ? end - begin : shape_[d]);
    }
    size_ += Volume(added.box.sizes);
  }

  const absl::Span<const int64_t> shape_;
  std::vector<FlatBox>& boxes_;
  int64_t size_ = 0;
};

}  // namespace

std::vector<FlatBox> FlatBoxes(absl::Span<const int64_t> shape, int64_t begin,
                               int64_t end) {
  DCP_CHECK(0 <= begin && begin <= end && end <= Volume(shape), "range [",
            begin, ", ", end, ") of shape ", ShapeToString(shape));
  std::vector<FlatBox> boxes;
  if (begin == end) return boxes;
  Dims prefix;
  Cutter(shape, boxes).Cut(prefix, begin, end);
  return boxes;
}

}  // namespace dcp
