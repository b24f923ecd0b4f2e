#include "tools/dcp_convert/layout_name.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"

namespace dcp::tools {
namespace {

// The cuts of one dimension: the distinct offsets of the boxes in it.
std::vector<int64_t> Cuts(absl::Span<const Box> boxes, size_t dim) {
  std::vector<int64_t> offsets;
  offsets.reserve(boxes.size());
  for (const Box& box : boxes) offsets.push_back(box.offsets[dim]);
  std::sort(offsets.begin(), offsets.end());
  offsets.erase(std::unique(offsets.begin(), offsets.end()), offsets.end());
  return offsets;
}

// Whether all pieces except the last have one size and the last is not larger.
bool IsEven(absl::Span<const int64_t> cuts, int64_t size) {
  const int64_t piece = cuts[1] - cuts[0];
  for (size_t i = 1; i + 1 < cuts.size(); ++i) {
    if (cuts[i + 1] - cuts[i] != piece) return false;
  }
  return size - cuts.back() <= piece;
}

}  // namespace

std::string LayoutName(absl::Span<const int64_t> shape,
                       absl::Span<const Box> boxes) {
  if (boxes.size() <= 1) return "whole";
  std::string name;
  bool even = true;
  uint64_t num_cells = 1;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    const std::vector<int64_t> cuts = Cuts(boxes, dim);
    if (cuts.size() <= 1) continue;
    even = even && IsEven(cuts, shape[dim]);
    num_cells = CheckedMul(num_cells, cuts.size()).value_or(0);
    absl::StrAppend(&name, name.empty() ? "" : ", ", cuts.size(), " x Shard(",
                    dim, ")");
  }
  // Disjoint boxes that cover the shape form a grid exactly if their number is
  // the number of cells in the grid of their cuts.
  if (num_cells != boxes.size()) return absl::StrCat(boxes.size(), " chunks");
  return absl::StrCat(name, even ? "" : " (uneven)");
}

}  // namespace dcp::tools
