// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/strided/nest_run.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "dcp/base/check.h"
#include "dcp/plan/strided/cuts.h"
#include "dcp/tensor/box.h"

namespace dcp {
namespace {

// One side of a run as a number: the loops, and the unit as one more, by
// falling stride on that side.
struct SideDigits {
  PieceSide side;
  absl::InlinedVector<size_t, 9> loops;  // their numbers; the last is the unit
  Digits digits;
};

uint64_t SideStride(const CopyLoop& loop, PieceSide side) {
  return side == PieceSide::kSrc ? loop.src_stride : loop.dst_stride;
}

SideDigits FindSideDigits(const NestRun& run, PieceSide side) {
  SideDigits all{.side = side, .loops = {}, .digits = {}};
  const auto digit = [&](size_t i) {
    if (i < run.loops.size()) {
      return Digit{run.loops[i].count, SideStride(run.loops[i], side)};
    }
    return Digit{run.unit, side == PieceSide::kSrc ? run.src_element_bytes
                                                   : run.dst_element_bytes};
  };
  for (size_t i = 0; i <= run.loops.size(); ++i) all.loops.push_back(i);
  std::sort(all.loops.begin(), all.loops.end(), [&](size_t a, size_t b) {
    return std::pair(digit(b).step, a) < std::pair(digit(a).step, b);
  });
  for (const size_t i : all.loops) all.digits.push_back(digit(i));
  return all;
}

// The part of `run` with these digit values.
NestRun CutRunPart(const NestRun& run, const SideDigits& digits,
                   absl::Span<const DigitRange> cut) {
  NestRun part = run;
  for (size_t i = 0; i < cut.size(); ++i) {
    const size_t loop = digits.loops[i];
    if (loop == run.loops.size()) {
      part.src += cut[i].first * run.src_element_bytes;
      part.dst += cut[i].first * run.dst_element_bytes;
      part.unit = cut[i].count;
    } else {
      part.src += cut[i].first * run.loops[loop].src_stride;
      part.dst += cut[i].first * run.loops[loop].dst_stride;
      part.loops[loop].count = cut[i].count;
    }
  }
  part.loops.erase(
      std::remove_if(part.loops.begin(), part.loops.end(),
                     [](const CopyLoop& loop) { return loop.count == 1; }),
      part.loops.end());
  return part;
}

// Calls `visit` with the parts of `run` that have elements beginning in `range`
// on one side.
template <typename Visit>
void CutRun(const NestRun& run, PieceSide side, NumberRange range,
            const Visit& visit) {
  const SideDigits digits = FindSideDigits(run, side);
  ForEachCut(side == PieceSide::kSrc ? run.src : run.dst, digits.digits, range,
             [&](absl::Span<const DigitRange> cut) {
               visit(CutRunPart(run, digits, cut));
               return true;
             });
}

// Merges loops that continue each other on both sides, and the last into the
// unit.
void MergeLoops(NestRun& run) {
  std::sort(run.loops.begin(), run.loops.end(),
            [](const CopyLoop& a, const CopyLoop& b) {
              return a.dst_stride > b.dst_stride;
            });
  absl::InlinedVector<CopyLoop, 8> merged;  // innermost first
  merged.push_back({.count = 1,
                    .src_stride = run.src_element_bytes,
                    .dst_stride = run.dst_element_bytes});
  for (size_t i = run.loops.size(); i-- > 0;) {
    const CopyLoop& loop = run.loops[i];
    CopyLoop& inner = merged.back();
    if (loop.src_stride == inner.count * inner.src_stride &&
        loop.dst_stride == inner.count * inner.dst_stride) {
      inner.count *= loop.count;
    } else {
      merged.push_back(loop);
    }
  }
  run.unit = merged.front().count;
  run.loops.assign(merged.rbegin(), merged.rend() - 1);
}

// The run for a piece inside the window's box and the chunk, as if the window
// were the whole box.
NestRun MakeRun(const Window& window, const ChunkView& chunk,
                const StridedPiece& piece) {
  const Dims dst_strides = RowMajorStrides(window.box.sizes);
  NestRun run{.file = chunk.file,
              .tag = window.tag,
              .src = 0,
              .dst = 0,
              .unit = 1,
              .loops = {},
              .src_element_bytes = chunk.element_bytes,
              .dst_element_bytes = window.element_bytes};
  for (size_t d = 0; d < piece.src_base.size(); ++d) {
    run.src += (piece.src_base[d] - ToUnsigned(chunk.box.offsets[d])) *
               ToUnsigned(chunk.strides[d]);
  }
  for (size_t d = 0; d < piece.dst_base.size(); ++d) {
    run.dst += (piece.dst_base[d] - ToUnsigned(window.box.offsets[d])) *
               ToUnsigned(dst_strides[d]);
  }
  run.src = chunk.offset + run.src * chunk.element_bytes;
  run.dst *= window.element_bytes;
  for (const StridedLoop& loop : piece.loops) {
    if (loop.count == 1) continue;
    const uint64_t src_stride =
        loop.src_dim < 0
            ? 0
            : loop.src_step *
                  ToUnsigned(chunk.strides[static_cast<size_t>(loop.src_dim)]);
    const uint64_t dst_stride =
        loop.dst_step *
        ToUnsigned(dst_strides[static_cast<size_t>(loop.dst_dim)]);
    run.loops.push_back({.count = loop.count,
                         .src_stride = src_stride * chunk.element_bytes,
                         .dst_stride = dst_stride * window.element_bytes});
  }
  MergeLoops(run);
  return run;
}

// Appends `run`. If it continues where the last run (with index `first` or
// higher) ends, lengthens that one instead.
void Append(const NestRun& run, size_t first, std::vector<NestRun>& runs) {
  if (runs.size() > first) {
    NestRun& last = runs.back();
    if (last.loops.empty() && run.loops.empty() &&
        last.src + last.unit * last.src_element_bytes == run.src &&
        last.dst + last.unit * last.dst_element_bytes == run.dst) {
      last.unit += run.unit;
      return;
    }
  }
  runs.push_back(run);
}

// The source digits up to the last that leaves a gap that is not worth reading.
// Each combination of values has an extent of `length` bytes.
struct ExtentDigits {
  Digits digits;
  uint64_t length;
};

ExtentDigits FindExtentDigits(const NestRun& run, uint64_t gap_bytes) {
  const SideDigits digits = FindSideDigits(run, PieceSide::kSrc);
  ExtentDigits extents{.digits = {}, .length = run.src_element_bytes};
  size_t i = digits.digits.size();
  uint64_t length = run.src_element_bytes;
  std::ptrdiff_t num_digits = 0;
  while (i-- > 0) {
    const Digit& digit = digits.digits[i];
    if (digit.count > 1 && digit.step > length &&
        digit.step - length > gap_bytes) {
      num_digits = static_cast<std::ptrdiff_t>(i + 1);
      extents.length = length;
    }
    length += (digit.count - 1) * digit.step;
  }
  if (num_digits == 0) extents.length = length;
  extents.digits.assign(digits.digits.begin(),
                        digits.digits.begin() + num_digits);
  return extents;
}

// Calls `visit` with the extent's begin for each combination of values.
void ForEachBegin(absl::Span<const Digit> digits, uint64_t begin,
                  absl::FunctionRef<void(uint64_t begin)> visit) {
  if (digits.empty()) return visit(begin);
  for (uint64_t i = 0; i < digits[0].count; ++i) {
    ForEachBegin(digits.subspan(1), begin + i * digits[0].step, visit);
  }
}

// Moves the part's source to `rows` in memory, relative to the first row. False
// if it does not consist of rows.
bool MoveToMemory(const FileRows& rows, NestRun& part) {
  const uint64_t src = part.src - rows.offset;
  uint64_t end_in_row = src % rows.stride + part.unit * part.src_element_bytes;
  for (CopyLoop& loop : part.loops) {
    if (loop.src_stride % rows.stride == 0) {
      loop.src_stride = loop.src_stride / rows.stride * rows.pitch;
    } else {
      end_in_row += (loop.count - 1) * loop.src_stride;
    }
  }
  part.src = src / rows.stride * rows.pitch + src % rows.stride;
  // An element's end may lie in the margin.
  return end_in_row < rows.length + part.src_element_bytes;
}

}  // namespace

void AppendNestRuns(const Window& window, const ChunkView& chunk,
                    const StridedPiece& piece, std::vector<NestRun>& runs) {
  DCP_DCHECK(chunk.strides.size() == chunk.box.sizes.size() &&
                 chunk.strides.size() == piece.src_base.size(),
             "a chunk of another tensor");
  const size_t first = runs.size();
  const NumberRange range{
      window.first * window.element_bytes,
      (window.first + window.num_elements) * window.element_bytes};
  const Box bounds =
      WindowBounds(window.box, window.first, window.num_elements);
  Clip(piece, PieceSide::kDst, bounds, [&](const StridedPiece& inside) {
    Clip(inside, PieceSide::kSrc, chunk.box, [&](const StridedPiece& part) {
      CutRun(MakeRun(window, chunk, part), PieceSide::kDst, range,
             [&](NestRun run) {
               run.dst = window.dst + run.dst - range.low;
               Append(run, first, runs);
             });
    });
  });
}

uint64_t NumElements(const NestRun& run) {
  uint64_t product = run.unit;
  for (const CopyLoop& loop : run.loops) product *= loop.count;
  return product;
}

void ForEachExtent(
    const NestRun& run, uint64_t gap_bytes,
    absl::FunctionRef<void(uint64_t begin, uint64_t end)> visit) {
  const ExtentDigits extents = FindExtentDigits(run, gap_bytes);
  ForEachBegin(extents.digits, run.src,
               [&](uint64_t begin) { visit(begin, begin + extents.length); });
}

uint64_t NumExtents(const NestRun& run, uint64_t gap_bytes) {
  uint64_t product = 1;
  for (const Digit& digit : FindExtentDigits(run, gap_bytes).digits) {
    product *= digit.count;
  }
  return product;
}

bool HasElementIn(const NestRun& run, uint64_t window_offset,
                  uint64_t window_length) {
  const SideDigits digits = FindSideDigits(run, PieceSide::kSrc);
  return !ForEachCut(run.src, digits.digits,
                     {window_offset, window_offset + window_length},
                     [](absl::Span<const DigitRange>) { return false; });
}

void CutByDestination(const NestRun& run, uint64_t begin, uint64_t end,
                      absl::FunctionRef<void(const NestRun& part)> visit) {
  CutRun(run, PieceSide::kDst, {begin, end}, visit);
}

void ApplyRun(
    const NestRun& run, uint64_t window_offset, uint64_t window_length,
    ByteSpan data,
    absl::FunctionRef<void(const NestRun& part, const uint8_t* src)> copy) {
  CutRun(run, PieceSide::kSrc, {window_offset, window_offset + window_length},
         [&](const NestRun& part) {
           DCP_DCHECK(
               part.src - window_offset + part.src_element_bytes <= data.size(),
               "the window lacks its margin");
           copy(part, data.data() + (part.src - window_offset));
         });
}

void ApplyRun(
    const NestRun& run, const FileRows& rows, ByteSpan data,
    absl::FunctionRef<void(const NestRun& part, const uint8_t* src)> copy) {
  DCP_DCHECK(rows.count > 0 && rows.length <= rows.stride, "no rows");
  const uint64_t end =
      rows.offset + (rows.count - 1) * rows.stride + rows.length;
  CutRun(run, PieceSide::kSrc, {rows.offset, end}, [&](const NestRun& part) {
    NestRun moved = part;
    if (MoveToMemory(rows, moved)) {
      copy(moved, data.data() + moved.src);
      return;
    }
    for (uint64_t i = 0; i < rows.count; ++i) {
      ApplyRun(part, rows.offset + i * rows.stride, rows.length,
               data.subspan(i * rows.pitch), copy);
    }
  });
}

}  // namespace dcp
