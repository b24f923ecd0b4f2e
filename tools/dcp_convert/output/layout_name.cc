// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/output/layout_name.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"

namespace dcp::tools {
namespace {

// One dimension's cuts: the boxes' distinct offsets in it.
std::vector<int64_t> Cuts(absl::Span<const Box> boxes, size_t dim) {
  std::vector<int64_t> offsets;
  offsets.reserve(boxes.size());
  for (const Box& box : boxes) offsets.push_back(box.offsets[dim]);
  std::sort(offsets.begin(), offsets.end());
  offsets.erase(std::unique(offsets.begin(), offsets.end()), offsets.end());
  return offsets;
}

// Whether all pieces except the last have one size, and the last is not larger.
bool IsEven(absl::Span<const int64_t> cuts, int64_t size) {
  const int64_t piece = cuts[1] - cuts[0];
  for (size_t i = 1; i + 1 < cuts.size(); ++i) {
    if (cuts[i + 1] - cuts[i] != piece) return false;
  }
  return size - cuts.back() <= piece;
}

// The chunk that each rank wrote, if ranks 0 to n - 1 each wrote one of the n
// chunks in dimension `dim`; otherwise empty.
std::vector<size_t> ChunkOfEachRank(absl::Span<const Box> boxes, size_t dim,
                                    absl::Span<const int64_t> cuts,
                                    absl::Span<const int64_t> ranks) {
  const size_t num_chunks = boxes.size();
  std::vector<size_t> chunks(num_chunks, num_chunks);
  if (ranks.size() != num_chunks || cuts.size() != num_chunks) return {};
  for (size_t i = 0; i < num_chunks; ++i) {
    if (ranks[i] < 0 || static_cast<size_t>(ranks[i]) >= num_chunks) return {};
    size_t& chunk = chunks[static_cast<size_t>(ranks[i])];
    if (chunk != num_chunks) return {};
    chunk = static_cast<size_t>(
        std::lower_bound(cuts.begin(), cuts.end(), boxes[i].offsets[dim]) -
        cuts.begin());
  }
  return chunks;
}

// The size of the mesh's second axis, if that axis cut first; otherwise 1. Rank
// i * size + j then has chunk j * (n / size) + i.
size_t ChunkStride(absl::Span<const size_t> chunks) {
  const size_t num_chunks = chunks.size();
  for (size_t size = 2; size <= num_chunks / 2; ++size) {
    if (num_chunks % size != 0) continue;
    const size_t num_parts = num_chunks / size;
    bool fits = true;
    for (size_t rank = 0; rank < num_chunks && fits; ++rank) {
      fits = chunks[rank] == rank % size * num_parts + rank / size;
    }
    if (fits) return size;
  }
  return 1;
}

// How a dimension's `num_cuts` pieces lie on the ranks.
std::string DimName(size_t dim, size_t num_cuts, size_t stride) {
  if (stride == 1) return absl::StrCat(num_cuts, " x Shard(", dim, ")");
  return absl::StrCat(num_cuts / stride, " x StridedShard(", dim, ", ", stride,
                      "), ", stride, " x Shard(", dim, ")");
}

}  // namespace

std::string LayoutName(absl::Span<const int64_t> shape,
                       absl::Span<const Box> boxes,
                       absl::Span<const int64_t> ranks) {
  if (boxes.size() <= 1) return "whole";
  std::string name;
  bool even = true;
  uint64_t num_cells = 1;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    const std::vector<int64_t> cuts = Cuts(boxes, dim);
    if (cuts.size() <= 1) continue;
    even = even && IsEven(cuts, shape[dim]);
    num_cells = CheckedMul(num_cells, cuts.size()).value_or(0);
    const size_t stride = ChunkStride(ChunkOfEachRank(boxes, dim, cuts, ranks));
    absl::StrAppend(&name, name.empty() ? "" : ", ",
                    DimName(dim, cuts.size(), stride));
  }
  // Disjoint boxes that cover the shape form a grid exactly if there are as
  // many as cells in the grid that their cuts make.
  if (num_cells != boxes.size()) return absl::StrCat(boxes.size(), " chunks");
  return absl::StrCat(name, even ? "" : " (uneven)");
}

}  // namespace dcp::tools
