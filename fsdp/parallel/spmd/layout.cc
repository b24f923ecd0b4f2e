// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/spmd/layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"

namespace fsdp::spmd {
namespace {

// Runs of dimensions [begin, end) in either shape that hold the same elements.
struct Run {
  size_t from_begin, from_end, to_begin, to_end;
};

std::optional<std::vector<Run>> MatchRuns(const Sizes& from, const Sizes& to) {
  std::vector<Run> runs;
  size_t i = 0;
  size_t j = 0;
  while (i < from.size() || j < to.size()) {
    Run run{i, i, j, j};
    int64_t a = 1;
    int64_t b = 1;
    if (i < from.size()) a = from[run.from_end++];
    if (j < to.size()) b = to[run.to_end++];
    while (a != b) {
      if (a < b && run.from_end < from.size()) {
        a *= from[run.from_end++];
      } else if (b < a && run.to_end < to.size()) {
        b *= to[run.to_end++];
      } else {
        return std::nullopt;
      }
    }
    i = run.from_end;
    j = run.to_end;
    runs.push_back(run);
  }
  return runs;
}

// The cut within one run.
std::optional<Layout> ReshapedRun(const Sizes& from, const Layout& cut,
                                  const Sizes& to, int64_t ranks,
                                  const Run& run) {
  const auto dim = static_cast<size_t>(cut.dim);
  // How many equal blocks lie in front of the cut, and how many elements one
  // index in the cut dimension has in this run.
  const int64_t blocks = SizesProduct(from, run.from_begin, dim) * cut.blocks;
  const int64_t inner = SizesProduct(from, dim + 1, run.from_end);
  const int64_t length = from[dim] / cut.blocks;
  int64_t before = 1;
  for (size_t k = run.to_begin; k < run.to_end; ++k) {
    if (to[k] == 1 && k + 1 < run.to_end) continue;
    const int64_t reach = before * to[k];
    if (reach <= blocks && k + 1 < run.to_end) {
      before = reach;
      continue;
    }
    if (blocks % before != 0 || to[k] % (blocks / before) != 0) {
      return std::nullopt;
    }
    const Layout result =
        Layout::Shard(static_cast<int64_t>(k), blocks / before, cut.balanced);
    const int64_t new_length = to[k] / result.blocks;
    const int64_t new_inner = SizesProduct(to, k + 1, run.to_end);
    if (new_length * new_inner != length * inner) return std::nullopt;
    // Each rank's pieces must begin and end at the same elements.
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const auto old_pieces =
          RankPieces(length, cut.At(0).WithBlocks(1), ranks, rank);
      const auto new_pieces =
          RankPieces(new_length, result.At(0).WithBlocks(1), ranks, rank);
      if (old_pieces.size() != new_pieces.size()) return std::nullopt;
      for (size_t p = 0; p < old_pieces.size(); ++p) {
        if (old_pieces[p].length * inner != new_pieces[p].length * new_inner ||
            (old_pieces[p].length > 0 &&
             old_pieces[p].begin * inner != new_pieces[p].begin * new_inner)) {
          return std::nullopt;
        }
      }
    }
    return result;
  }
  return std::nullopt;
}

}  // namespace

std::string to_string(const Layout& layout) {
  switch (layout.kind) {
    case Layout::Kind::kSame:
      return "same";
    case Layout::Kind::kPartial:
      return "partial";
    case Layout::Kind::kShard:
      break;
  }
  std::string text = absl::StrCat("shard(", layout.dim);
  if (layout.blocks > 1) absl::StrAppend(&text, ", blocks=", layout.blocks);
  if (layout.balanced) absl::StrAppend(&text, ", balanced");
  return absl::StrCat(text, ")");
}

Layout ToLayout(const Placement& placement, int64_t ndim) {
  if (placement.is_replicate()) return Layout::Same();
  if (placement.is_partial()) {
    TORCH_CHECK_VALUE(placement.reduce_op() == ReduceOp::kSum,
                      to_string(placement),
                      " cannot be the layout of an activation; use Partial()");
    return Layout::Partial();
  }
  TORCH_CHECK_VALUE(placement.kind() == Placement::Kind::kShard,
                    to_string(placement),
                    " cannot be the layout of an activation; use Shard(dim)");
  return Layout::Shard(placement.normalized(ndim).dim());
}

Placement NearestPlacement(const Layout& layout) {
  if (layout.is_same()) return Replicate();
  if (layout.is_partial()) return fsdp::Partial();
  if (layout.blocks > 1) return StridedShard(layout.dim, layout.blocks);
  return fsdp::Shard(layout.dim);
}

std::vector<Piece> RankPieces(int64_t length, const Layout& shard,
                              int64_t ranks, int64_t rank) {
  const int64_t block = length / shard.blocks;
  const int64_t num_cuts = shard.balanced ? 2 * ranks : ranks;
  const int64_t chunk = (block + num_cuts - 1) / num_cuts;
  std::vector<Piece> pieces;
  const auto add = [&](int64_t base, int64_t index) {
    const int64_t begin = std::min(block, chunk * index);
    const int64_t end = std::min(block, begin + chunk);
    pieces.push_back({base + begin, end - begin});
  };
  for (int64_t b = 0; b < shard.blocks; ++b) {
    add(b * block, rank);
    if (shard.balanced) add(b * block, 2 * ranks - 1 - rank);
  }
  return pieces;
}

int64_t PartLength(int64_t length, const Layout& shard, int64_t ranks,
                   int64_t rank) {
  int64_t sum = 0;
  for (const Piece& piece :
       RankPieces(length / shard.blocks, shard.WithBlocks(1), ranks, rank)) {
    sum += piece.length;
  }
  return sum * shard.blocks;
}

Sizes PartSizes(const Sizes& whole, const Layout& layout, int64_t ranks,
                int64_t rank) {
  Sizes sizes = whole;
  if (layout.is_shard()) {
    int64_t& size = sizes[static_cast<size_t>(layout.dim)];
    size = PartLength(size, layout, ranks, rank);
  }
  return sizes;
}

std::optional<Layout> Reshaped(const Sizes& from, const Layout& cut,
                               const Sizes& to, int64_t ranks) {
  const std::optional<std::vector<Run>> runs = MatchRuns(from, to);
  if (!runs.has_value()) return std::nullopt;
  const auto dim = static_cast<size_t>(cut.dim);
  for (const Run& run : *runs) {
    if (dim < run.from_begin || dim >= run.from_end) continue;
    return ReshapedRun(from, cut, to, ranks, run);
  }
  return std::nullopt;
}

Sizes WithInferred(Sizes to, int64_t numel) {
  const auto unknown = std::find(to.begin(), to.end(), -1);
  if (unknown == to.end()) return to;
  *unknown = 1;
  const int64_t known = ElementCount(to);
  *unknown = known == 0 ? 0 : numel / known;
  return to;
}

int64_t SizesProduct(const Sizes& sizes, size_t begin, size_t end) {
  int64_t product = 1;
  for (size_t i = begin; i < end; ++i) product *= sizes[i];
  return product;
}

}  // namespace fsdp::spmd
