// SPDX-License-Identifier: Apache-2.0
// Reorders dimensions, and splits pieces into low and high halves of bytes.
// Tested by tests/tools/dcp_convert/options/lens_options_test.cc.
#include "dcp/checkpoint/lens/lens_pieces.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace dcp {

StridedPiece WithLastTwoSwapped(StridedPiece piece) {
  const auto last = static_cast<int>(piece.src_base.size()) - 1;
  std::swap(piece.src_base[static_cast<size_t>(last - 1)],
            piece.src_base[static_cast<size_t>(last)]);
  for (StridedLoop& loop : piece.loops) {
    if (loop.src_dim >= last - 1) loop.src_dim = 2 * last - 1 - loop.src_dim;
  }
  return piece;
}

void ForEachHalf(
    const StridedPiece& piece,
    absl::FunctionRef<void(const StridedPiece& half, bool is_high)> visit) {
  const auto last = static_cast<int>(piece.src_base.size()) - 1;
  const auto is_odd = [&](const StridedLoop& loop) {
    return loop.src_dim == last && loop.count > 1 && loop.src_step % 2 != 0;
  };
  const auto odd = std::find_if(piece.loops.begin(), piece.loops.end(), is_odd);
  StridedPiece half = piece;
  if (odd == piece.loops.end()) {
    uint64_t& base = half.src_base.back();
    const bool is_high = base % 2 != 0;
    base /= 2;
    for (StridedLoop& loop : half.loops) {
      if (loop.src_dim == last) loop.src_step /= 2;
    }
    visit(half, is_high);
    return;
  }
  StridedLoop& loop =
      half.loops[static_cast<size_t>(odd - piece.loops.begin())];
  loop.src_step *= 2;
  loop.dst_step *= 2;
  for (const uint64_t parity : {0, 1}) {
    loop.count = (odd->count + 1 - parity) / 2;
    half.src_base.back() = piece.src_base.back() + parity * odd->src_step;
    half.dst_base[static_cast<size_t>(odd->dst_dim)] =
        piece.dst_base[static_cast<size_t>(odd->dst_dim)] +
        parity * odd->dst_step;
    ForEachHalf(half, visit);
  }
}

}  // namespace dcp
