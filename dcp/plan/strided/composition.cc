// SPDX-License-Identifier: Apache-2.0
// In each dimension of the middle tensor, both pieces visit numbers in a
// mixed-radix system: a base, and digits with falling steps. The pairs of
// digits that meet are found from the largest step on. Digits with equal steps
// advance together, from where one begins; a digit with a smaller step is split
// at the multiples of the larger one; and the rest of the larger step has one
// or two values at which the smaller digits can still meet it.
#include "dcp/plan/strided/composition.h"

#include <algorithm>
#include <cstddef>

#include "absl/container/inlined_vector.h"

namespace dcp {
namespace {

// A loop of either piece: how it moves in the middle, and on the other side.
struct Walker {
  uint64_t count = 1;
  int64_t step = 0;
  int other_dim = -1;
  uint64_t other_step = 0;
};
using Walkers = absl::InlinedVector<Walker, 8>;

int64_t FloorDivide(int64_t a, int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}
int64_t CeilDivide(int64_t a, int64_t b) { return -FloorDivide(-a, b); }

// How far the walkers from `begin` on reach.
int64_t MaxReach(const Walkers& walkers, size_t begin) {
  int64_t reach = 0;
  for (size_t i = begin; i < walkers.size(); ++i) {
    reach += static_cast<int64_t>(walkers[i].count - 1) * walkers[i].step;
  }
  return reach;
}

class Composer {
 public:
  Composer(const StridedPiece& first, const StridedPiece& second,
           PieceSide side, uint64_t& max_steps,
           absl::FunctionRef<void(const StridedPiece&)> visit)
      : first_(first),
        second_(second),
        side_(side),
        max_steps_(max_steps),
        visit_(visit) {
    result_.src = first.src;
    result_.src_base = first.src_base;
    result_.dst = side == PieceSide::kSrc ? second.dst : second.src;
    result_.dst_base =
        side == PieceSide::kSrc ? second.dst_base : second.src_base;
    // Loops that repeat elements in the second piece.
    for (const StridedLoop& loop : second.loops) {
      if (MiddleDim(loop) >= 0 || loop.count == 1) continue;
      result_.loops.push_back({.count = loop.count,
                               .dst_dim = loop.dst_dim,
                               .dst_step = loop.dst_step});
    }
  }

  bool Run() { return Enter(0); }

 private:
  int MiddleDim(const StridedLoop& loop) const {
    return side_ == PieceSide::kSrc ? loop.src_dim : loop.dst_dim;
  }

  // The loops along a dimension in the middle, by falling step.
  Walkers FindWalkers(const StridedPiece& piece, PieceSide side,
                      size_t dim) const {
    Walkers walkers;
    for (const StridedLoop& loop : piece.loops) {
      const bool is_src = side == PieceSide::kSrc;
      if ((is_src ? loop.src_dim : loop.dst_dim) != static_cast<int>(dim) ||
          loop.count == 1) {
        continue;
      }
      walkers.push_back(
          {.count = loop.count,
           .step = static_cast<int64_t>(is_src ? loop.src_step : loop.dst_step),
           .other_dim = is_src ? loop.dst_dim : loop.src_dim,
           .other_step = is_src ? loop.dst_step : loop.src_step});
    }
    std::sort(walkers.begin(), walkers.end(),
              [](const Walker& a, const Walker& b) { return a.step > b.step; });
    return walkers;
  }

  // Composes along the dimensions from `dim` on.
  bool Enter(size_t dim) {
    if (dim == first_.dst_base.size()) {
      visit_(result_);
      return true;
    }
    const auto& base =
        side_ == PieceSide::kSrc ? second_.src_base : second_.dst_base;
    return Join(dim, FindWalkers(first_, PieceSide::kDst, dim),
                FindWalkers(second_, side_, dim),
                static_cast<int64_t>(base[dim]) -
                    static_cast<int64_t>(first_.dst_base[dim]));
  }

  // All ways in which the sum from `a` equals the sum from `b` plus `delta`.
  bool Join(size_t dim, const Walkers& a, const Walkers& b, int64_t delta) {
    if (max_steps_ == 0) return false;
    --max_steps_;
    if (delta > MaxReach(a, 0) || -delta > MaxReach(b, 0)) return true;
    if (a.empty() && b.empty()) return Enter(dim + 1);
    if (b.empty()) return FixFirst(dim, a, b, delta);
    if (a.empty()) return FixSecond(dim, a, b, delta);
    if (a[0].step == b[0].step) return Advance(dim, a, b, delta);
    if (a[0].step > b[0].step) {
      const int64_t ratio = a[0].step / b[0].step;
      return a[0].step % b[0].step == 0 &&
                     b[0].count > static_cast<uint64_t>(ratio)
                 ? SplitSecond(dim, a, b, delta, ratio)
                 : FixFirst(dim, a, b, delta);
    }
    const int64_t ratio = b[0].step / a[0].step;
    return b[0].step % a[0].step == 0 &&
                   a[0].count > static_cast<uint64_t>(ratio)
               ? SplitFirst(dim, a, b, delta, ratio)
               : FixSecond(dim, a, b, delta);
  }

  // Tries the values that the first digit of `a` can have.
  bool FixFirst(size_t dim, const Walkers& a, const Walkers& b, int64_t delta) {
    const Walkers rest(a.begin() + 1, a.end());
    const int64_t low = CeilDivide(delta - MaxReach(rest, 0), a[0].step);
    const int64_t high = FloorDivide(delta + MaxReach(b, 0), a[0].step);
    const int64_t end = std::min(high + 1, static_cast<int64_t>(a[0].count));
    const StridedPiece before = result_;
    for (int64_t value = std::max<int64_t>(low, 0); value < end; ++value) {
      MoveSource(a[0], static_cast<uint64_t>(value));
      if (!Join(dim, rest, b, delta - value * a[0].step)) return false;
      result_ = before;
    }
    return true;
  }

  bool FixSecond(size_t dim, const Walkers& a, const Walkers& b,
                 int64_t delta) {
    const Walkers rest(b.begin() + 1, b.end());
    const int64_t low = CeilDivide(-delta - MaxReach(rest, 0), b[0].step);
    const int64_t high = FloorDivide(MaxReach(a, 0) - delta, b[0].step);
    const int64_t end = std::min(high + 1, static_cast<int64_t>(b[0].count));
    const StridedPiece before = result_;
    for (int64_t value = std::max<int64_t>(low, 0); value < end; ++value) {
      MoveDestination(b[0], static_cast<uint64_t>(value));
      if (!Join(dim, a, rest, delta + value * b[0].step)) return false;
      result_ = before;
    }
    return true;
  }

  // The first digits have one step, so they advance together, `shift` apart.
  bool Advance(size_t dim, const Walkers& a, const Walkers& b, int64_t delta) {
    const Walkers rest_a(a.begin() + 1, a.end());
    const Walkers rest_b(b.begin() + 1, b.end());
    const int64_t step = a[0].step;
    const int64_t low = CeilDivide(delta - MaxReach(rest_a, 0), step);
    const int64_t high = FloorDivide(delta + MaxReach(rest_b, 0), step);
    const StridedPiece before = result_;
    for (int64_t shift = low; shift <= high; ++shift) {
      const int64_t begin = std::max<int64_t>(0, -shift);
      const int64_t end = std::min(static_cast<int64_t>(b[0].count),
                                   static_cast<int64_t>(a[0].count) - shift);
      if (begin >= end) continue;
      MoveSource(a[0], static_cast<uint64_t>(begin + shift));
      MoveDestination(b[0], static_cast<uint64_t>(begin));
      if (end - begin > 1) {
        result_.loops.push_back(
            {.count = static_cast<uint64_t>(end - begin),
             .src_dim = a[0].other_dim,
             .src_step = a[0].other_dim < 0 ? 0 : a[0].other_step,
             .dst_dim = b[0].other_dim,
             .dst_step = b[0].other_dim < 0 ? 0 : b[0].other_step});
      }
      if (!Join(dim, rest_a, rest_b, delta - shift * step)) return false;
      result_ = before;
    }
    return true;
  }

  // Splits the first digit of `b`, which has the smaller step, where the first
  // digit of `a` advances.
  bool SplitSecond(size_t dim, const Walkers& a, const Walkers& b,
                   int64_t delta, int64_t ratio) {
    const StridedPiece before = result_;
    return ForEachPart(b, ratio, Alignment(-delta, b[0].step, a[0].step),
                       [&](uint64_t skipped, const Walkers& part) {
                         MoveDestination(b[0], skipped);
                         const bool is_done = Join(
                             dim, a, part,
                             delta + static_cast<int64_t>(skipped) * b[0].step);
                         result_ = before;
                         return is_done;
                       });
  }

  bool SplitFirst(size_t dim, const Walkers& a, const Walkers& b, int64_t delta,
                  int64_t ratio) {
    const StridedPiece before = result_;
    return ForEachPart(a, ratio, Alignment(delta, a[0].step, b[0].step),
                       [&](uint64_t skipped, const Walkers& part) {
                         MoveSource(a[0], skipped);
                         const bool is_done = Join(
                             dim, part, b,
                             delta - static_cast<int64_t>(skipped) * a[0].step);
                         result_ = before;
                         return is_done;
                       });
  }

  // The number of the smaller digit's steps to the larger one's next multiple,
  // which begins `distance` later.
  static uint64_t Alignment(int64_t distance, int64_t step, int64_t larger) {
    const int64_t rest = (distance % larger + larger) % larger;
    return static_cast<uint64_t>(rest / step);
  }

  // After `aligned` steps, the rest of the first digit becomes groups with
  // `ratio` steps; before and after that are fewer.
  static bool ForEachPart(
      const Walkers& all, int64_t ratio, uint64_t aligned,
      absl::FunctionRef<bool(uint64_t skipped, const Walkers& part)> visit) {
    const Walker& digit = all[0];
    const auto size = static_cast<uint64_t>(ratio);
    const uint64_t num_groups = (digit.count - aligned) / size;
    const uint64_t rest = (digit.count - aligned) % size;
    const auto with = [&](uint64_t groups, uint64_t count) {
      Walkers part;
      if (groups > 1) {
        part.push_back({.count = groups,
                        .step = digit.step * ratio,
                        .other_dim = digit.other_dim,
                        .other_step = digit.other_step * size});
      }
      if (count > 1) {
        part.push_back(digit);
        part.back().count = count;
      }
      part.insert(part.end(), all.begin() + 1, all.end());
      return part;
    };
    return (aligned == 0 || visit(0, with(1, aligned))) &&
           (num_groups == 0 || visit(aligned, with(num_groups, size))) &&
           (rest == 0 || visit(aligned + num_groups * size, with(1, rest)));
  }

  void MoveSource(const Walker& walker, uint64_t steps) {
    if (walker.other_dim < 0) return;
    result_.src_base[static_cast<size_t>(walker.other_dim)] +=
        steps * walker.other_step;
  }

  void MoveDestination(const Walker& walker, uint64_t steps) {
    if (walker.other_dim < 0) return;
    result_.dst_base[static_cast<size_t>(walker.other_dim)] +=
        steps * walker.other_step;
  }

  const StridedPiece& first_;
  const StridedPiece& second_;
  const PieceSide side_;
  uint64_t& max_steps_;
  const absl::FunctionRef<void(const StridedPiece&)> visit_;
  StridedPiece result_;
};

}  // namespace

bool Compose(const StridedPiece& first, const StridedPiece& second,
             PieceSide side, uint64_t& max_steps,
             absl::FunctionRef<void(const StridedPiece& piece)> visit) {
  return Composer(first, second, side, max_steps, visit).Run();
}

}  // namespace dcp
