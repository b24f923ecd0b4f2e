// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/strided/strided_piece.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/base/status.h"
#include "dcp/plan/strided/cuts.h"
#include "dcp/tensor/box.h"

namespace dcp {
namespace {

using Indices = absl::InlinedVector<uint64_t, 4>;

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

const Indices& SideBase(const StridedPiece& piece, PieceSide side) {
  return side == PieceSide::kSrc ? piece.src_base : piece.dst_base;
}

int LoopDim(const StridedLoop& loop, PieceSide side) {
  return side == PieceSide::kSrc ? loop.src_dim : loop.dst_dim;
}

uint64_t LoopStep(const StridedLoop& loop, PieceSide side) {
  return side == PieceSide::kSrc ? loop.src_step : loop.dst_step;
}

// The loops that walk along a dimension, by falling step.
struct DimLoops {
  absl::InlinedVector<size_t, kMaxStridedLoops> loops;  // their numbers
  Digits digits;
};

DimLoops FindDimLoops(const StridedPiece& piece, PieceSide side, size_t dim) {
  DimLoops of_dim;
  for (size_t i = 0; i < piece.loops.size(); ++i) {
    if (LoopDim(piece.loops[i], side) == static_cast<int>(dim)) {
      of_dim.loops.push_back(i);
    }
  }
  std::sort(of_dim.loops.begin(), of_dim.loops.end(), [&](size_t a, size_t b) {
    return LoopStep(piece.loops[a], side) > LoopStep(piece.loops[b], side);
  });
  for (const size_t i : of_dim.loops) {
    of_dim.digits.push_back(
        {piece.loops[i].count, LoopStep(piece.loops[i], side)});
  }
  return of_dim;
}

class Clipper {
 public:
  Clipper(const StridedPiece& piece, PieceSide side, const Box& box,
          absl::FunctionRef<void(const StridedPiece&)> visit)
      : side_(side), box_(box), visit_(visit), part_(piece) {}

  // Clips along the dimensions from `dim` on.
  void ClipFrom(size_t dim) {
    if (dim == SideBase(part_, side_).size()) {
      visit_(part_);
      return;
    }
    const DimLoops of_dim = FindDimLoops(part_, side_, dim);
    const uint64_t low = ToUnsigned(box_.offsets[dim]);
    const StridedPiece before = part_;
    ForEachCut(SideBase(before, side_)[dim], of_dim.digits,
               {low, low + ToUnsigned(box_.sizes[dim])},
               [&](absl::Span<const DigitRange> cut) {
                 for (size_t i = 0; i < cut.size(); ++i) {
                   Narrow(before, of_dim.loops[i], cut[i]);
                 }
                 ClipFrom(dim + 1);
                 part_ = before;
                 return true;
               });
  }

 private:
  // Leaves only these steps in a loop.
  void Narrow(const StridedPiece& before, size_t number, DigitRange steps) {
    const StridedLoop& loop = before.loops[number];
    part_.loops[number].count = steps.count;
    if (loop.src_dim >= 0) {
      part_.src_base[static_cast<size_t>(loop.src_dim)] +=
          steps.first * loop.src_step;
    }
    part_.dst_base[static_cast<size_t>(loop.dst_dim)] +=
        steps.first * loop.dst_step;
  }

  const PieceSide side_;
  const Box& box_;
  const absl::FunctionRef<void(const StridedPiece&)> visit_;
  StridedPiece part_;
};

// Checks one side of a piece that has elements.
absl::Status CheckSide(const StridedPiece& piece, PieceSide side,
                       absl::Span<const int64_t> shape) {
  const absl::string_view tensor =
      side == PieceSide::kSrc ? "source" : "destination";
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    const DimLoops of_dim = FindDimLoops(piece, side, dim);
    uint64_t reach = 0;
    for (size_t i = of_dim.digits.size(); i-- > 0;) {
      const Digit& digit = of_dim.digits[i];
      if (digit.count == 1) continue;
      if (digit.step <= reach) {
        return Invalid("loop ", of_dim.loops[i], " steps ", digit.step,
                       " in dimension ", dim, " of the ", tensor,
                       ", which inner loops cross by ", reach);
      }
      reach = SaturatingAdd(reach, SaturatingMul(digit.count - 1, digit.step));
    }
    if (SaturatingAdd(SideBase(piece, side)[dim], reach) >=
        ToUnsigned(shape[dim])) {
      return Invalid("a piece reaches from ", SideBase(piece, side)[dim],
                     " over ", reach, " more in dimension ", dim, " of the ",
                     tensor, ", which has ", shape[dim]);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckDims(const StridedPiece& piece, PieceSide side,
                       absl::Span<const int64_t> shape) {
  const absl::string_view tensor =
      side == PieceSide::kSrc ? "source" : "destination";
  if (SideBase(piece, side).size() != shape.size()) {
    return Invalid("a piece has ", SideBase(piece, side).size(),
                   " indices for a ", tensor, " of ", shape.size(),
                   " dimensions");
  }
  for (const StridedLoop& loop : piece.loops) {
    const int dim = LoopDim(loop, side);
    const int least = side == PieceSide::kSrc ? -1 : 0;
    if (dim < least || dim >= static_cast<int>(shape.size())) {
      return Invalid("a loop walks in dimension ", dim, " of a ", tensor,
                     " of ", shape.size(), " dimensions");
    }
  }
  return absl::OkStatus();
}

// If the source bounds have more than 4 times as many elements as the piece
// reads there: the outermost loop along the dimension that is filled least.
std::optional<size_t> SparsestLoop(const StridedPiece& piece) {
  double emptiness = 1;  // for all dimensions together
  double most = 1;
  std::optional<size_t> sparsest;
  for (size_t dim = 0; dim < piece.src_base.size(); ++dim) {
    const DimLoops of_dim = FindDimLoops(piece, PieceSide::kSrc, dim);
    double count = 1;
    double size = 1;
    for (const Digit& digit : of_dim.digits) {
      count *= static_cast<double>(digit.count);
      size += static_cast<double>((digit.count - 1) * digit.step);
    }
    emptiness *= size / count;
    if (size / count <= most) continue;
    most = size / count;
    size_t outermost = 0;
    while (of_dim.digits[outermost].count == 1) ++outermost;
    sparsest = of_dim.loops[outermost];
  }
  return emptiness > 4 ? sparsest : std::nullopt;
}

}  // namespace

StridedPiece WholePiece(uint32_t src, uint32_t dst,
                        absl::Span<const int64_t> shape) {
  StridedPiece piece;
  piece.src = src;
  piece.dst = dst;
  piece.src_base.resize(shape.size());
  piece.dst_base.resize(shape.size());
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    piece.loops.push_back({.count = static_cast<uint64_t>(shape[dim]),
                           .src_dim = static_cast<int>(dim),
                           .src_step = 1,
                           .dst_dim = static_cast<int>(dim),
                           .dst_step = 1});
  }
  return piece;
}

uint64_t NumElements(const StridedPiece& piece) {
  uint64_t product = 1;
  for (const StridedLoop& loop : piece.loops) product *= loop.count;
  return product;
}

Box FindBounds(const StridedPiece& piece, PieceSide side) {
  Box bounds;
  for (const uint64_t index : SideBase(piece, side)) {
    bounds.offsets.push_back(static_cast<int64_t>(index));
    bounds.sizes.push_back(1);
  }
  for (const StridedLoop& loop : piece.loops) {
    if (LoopDim(loop, side) < 0) continue;
    bounds.sizes[static_cast<size_t>(LoopDim(loop, side))] +=
        static_cast<int64_t>((loop.count - 1) * LoopStep(loop, side));
  }
  return bounds;
}

void Clip(const StridedPiece& piece, PieceSide side, const Box& box,
          absl::FunctionRef<void(const StridedPiece& part)> visit) {
  if (NumElements(piece) == 0) return;
  Clipper(piece, side, box, visit).ClipFrom(0);
}

absl::Status CheckStridedPiece(const StridedPiece& piece,
                               absl::Span<const int64_t> src_shape,
                               absl::Span<const int64_t> dst_shape) {
  if (piece.loops.size() > kMaxStridedLoops) {
    return Invalid("a piece has ", piece.loops.size(), " loops, which exceeds ",
                   kMaxStridedLoops);
  }
  const bool is_zeros = piece.src == StridedPiece::kZeros;
  if (is_zeros) src_shape = {};
  DCP_RETURN_IF_ERROR(CheckDims(piece, PieceSide::kSrc, src_shape));
  DCP_RETURN_IF_ERROR(CheckDims(piece, PieceSide::kDst, dst_shape));
  for (const StridedLoop& loop : piece.loops) {
    if (loop.count == 0) return absl::OkStatus();
  }
  DCP_RETURN_IF_ERROR(CheckSide(piece, PieceSide::kSrc, src_shape));
  return CheckSide(piece, PieceSide::kDst, dst_shape);
}

void ForEachDensePart(const StridedPiece& piece,
                      absl::FunctionRef<void(const StridedPiece& part)> visit) {
  const std::optional<size_t> sparse = SparsestLoop(piece);
  if (!sparse.has_value()) {
    visit(piece);
    return;
  }
  StridedPiece part = piece;
  StridedLoop& loop = part.loops[*sparse];
  const StridedLoop steps = std::exchange(loop, {.count = 1});
  for (uint64_t i = 0; i < steps.count; ++i) {
    ForEachDensePart(part, visit);
    part.src_base[static_cast<size_t>(steps.src_dim)] += steps.src_step;
    part.dst_base[static_cast<size_t>(steps.dst_dim)] += steps.dst_step;
  }
}

}  // namespace dcp
