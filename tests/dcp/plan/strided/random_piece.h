// SPDX-License-Identifier: Apache-2.0
// Shared by the tests for strided pieces: random pieces between random tensors,
// and their elements one by one. One thread.
#ifndef TESTS_DCP_PLAN_STRIDED_RANDOM_PIECE_H_
#define TESTS_DCP_PLAN_STRIDED_RANDOM_PIECE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "dcp/plan/strided/strided_piece.h"
#include "dcp/tensor/box.h"
#include "tests/dcp/plan/random.h"

namespace dcp::testing {

// A piece, and the tensors' shapes.
struct PlacedPiece {
  StridedPiece piece;
  Dims src_shape;
  Dims dst_shape;
};

// Gives the loops along `dim` on one side steps in random order, and returns
// how far they reach.
inline uint64_t GiveSteps(Random& random, StridedPiece& piece, PieceSide side,
                          int dim) {
  std::vector<StridedLoop*> loops;
  for (StridedLoop& loop : piece.loops) {
    if ((side == PieceSide::kSrc ? loop.src_dim : loop.dst_dim) == dim) {
      loops.insert(
          loops.begin() + random.Uniform(0, static_cast<int64_t>(loops.size())),
          &loop);
    }
  }
  uint64_t reach = 0;
  for (StridedLoop* loop : loops) {
    const auto gap = static_cast<uint64_t>(
        random.Uniform(0, 3) == 0 ? random.Uniform(0, 2) : 0);
    const uint64_t step = reach + 1 + gap;
    (side == PieceSide::kSrc ? loop->src_step : loop->dst_step) = step;
    reach += (loop->count - 1) * step;
  }
  return reach;
}

// Up to `max_loops` loops between tensors with up to 3 dimensions. Some repeat
// elements, unless `repeats` is false.
inline PlacedPiece RandomPiece(Random& random, int64_t max_loops,
                               bool repeats = true) {
  const int64_t src_dims = random.Uniform(0, 3);
  const int64_t dst_dims = random.Uniform(0, 3);
  PlacedPiece placed;
  StridedPiece& piece = placed.piece;
  const bool can_walk = dst_dims > 0 && (src_dims > 0 || repeats);
  for (int64_t i = can_walk ? random.Uniform(0, max_loops) : 0; i > 0; --i) {
    piece.loops.push_back(
        {.count = static_cast<uint64_t>(random.Uniform(1, 5)),
         .src_dim =
             static_cast<int>(random.Uniform(repeats ? -1 : 0, src_dims - 1)),
         .dst_dim = static_cast<int>(random.Uniform(0, dst_dims - 1))});
  }
  for (const PieceSide side : {PieceSide::kSrc, PieceSide::kDst}) {
    const bool is_src = side == PieceSide::kSrc;
    for (int dim = 0; dim < (is_src ? src_dims : dst_dims); ++dim) {
      const int64_t base = random.Uniform(0, 3);
      const auto reach =
          static_cast<int64_t>(GiveSteps(random, piece, side, dim));
      (is_src ? piece.src_base : piece.dst_base)
          .push_back(static_cast<uint64_t>(base));
      (is_src ? placed.src_shape : placed.dst_shape)
          .push_back(base + reach + 1 + random.Uniform(0, 2));
    }
  }
  return placed;
}

// An element's indices on either side.
struct PlacedElement {
  std::vector<uint64_t> dst;
  std::vector<uint64_t> src;

  friend auto operator<=>(const PlacedElement&, const PlacedElement&) = default;
};

// All elements in a piece, sorted.
inline std::vector<PlacedElement> PieceElements(const StridedPiece& piece) {
  std::vector<PlacedElement> elements = {
      {.dst = {piece.dst_base.begin(), piece.dst_base.end()},
       .src = {piece.src_base.begin(), piece.src_base.end()}}};
  for (const StridedLoop& loop : piece.loops) {
    std::vector<PlacedElement> stepped;
    for (const PlacedElement& element : elements) {
      for (uint64_t i = 0; i < loop.count; ++i) {
        PlacedElement& at = stepped.emplace_back(element);
        at.dst[static_cast<size_t>(loop.dst_dim)] += i * loop.dst_step;
        if (loop.src_dim >= 0) {
          at.src[static_cast<size_t>(loop.src_dim)] += i * loop.src_step;
        }
      }
    }
    elements = std::move(stepped);
  }
  std::sort(elements.begin(), elements.end());
  return elements;
}

inline bool IsInside(const std::vector<uint64_t>& index, const Box& box) {
  for (size_t d = 0; d < index.size(); ++d) {
    const auto at = static_cast<int64_t>(index[d]);
    if (at < box.offsets[d] || at >= box.offsets[d] + box.sizes[d]) {
      return false;
    }
  }
  return true;
}

}  // namespace dcp::testing

#endif  // TESTS_DCP_PLAN_STRIDED_RANDOM_PIECE_H_
