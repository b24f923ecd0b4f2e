// SPDX-License-Identifier: Apache-2.0
// A copy of single elements is fast if every cache line is touched once while
// it is in the cache, on both sides. One loop has the smallest stride in the
// destination, another may have the smallest in the source. If they differ, as
// in a transposition, the two are walked in tiles: source lines are copied into
// a tile, the tile is transposed in registers, and destination lines are copied
// out of it. All other loops go around these two.
#include "dcp/tensor/strided_copy.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "absl/container/inlined_vector.h"
#include "dcp/tensor/dtype.h"
#include "dcp/tensor/transpose_tile.h"

namespace dcp {
namespace {

using Loops = absl::InlinedVector<CopyLoop, 9>;

// 16 bytes, as one element.
struct Element16 {
  uint64_t halves[2];
};

template <typename T>
void CopyElement(const uint8_t* src, uint8_t* dst) {
  std::memcpy(dst, src, sizeof(T));
}

// Calls visit(ends) for each combination of steps in `loops`. The last loop is
// the innermost.
template <typename Visit>
void ForEachStep(absl::Span<const CopyLoop> loops, CopyEnds ends,
                 const Visit& visit) {
  absl::InlinedVector<uint64_t, 9> step(loops.size(), 0);
  while (true) {
    visit(ends);
    // Like an odometer: when the innermost loop reaches the end, the next one
    // steps.
    size_t i = loops.size();
    while (true) {
      if (i == 0) return;
      --i;
      ends.src += loops[i].src_stride;
      ends.dst += loops[i].dst_stride;
      if (++step[i] < loops[i].count) break;
      ends.src -= loops[i].count * loops[i].src_stride;
      ends.dst -= loops[i].count * loops[i].dst_stride;
      step[i] = 0;
    }
  }
}

// Fills `count` adjacent elements with one, by copying the elements already
// filled.
void Repeat(CopyEnds ends, uint64_t unit_bytes, uint64_t count) {
  const uint64_t length = count * unit_bytes;
  std::memcpy(ends.dst, ends.src, unit_bytes);
  for (uint64_t done = unit_bytes; done < length;) {
    const uint64_t more = std::min(done, length - done);
    std::memcpy(ends.dst + done, ends.dst, more);
    done += more;
  }
}

template <typename T>
void CopyLine(CopyEnds ends, const CopyLoop& loop) {
  if (loop.src_stride == 0 && loop.dst_stride == sizeof(T)) {
    Repeat(ends, sizeof(T), loop.count);
    return;
  }
  for (uint64_t i = 0; i < loop.count; ++i) {
    CopyElement<T>(ends.src + i * loop.src_stride,
                   ends.dst + i * loop.dst_stride);
  }
}

// Writes a line around the cache, like StreamingCopy, to an address that is a
// multiple of the line's size.
void StoreAroundCache(const void* line, uint8_t* dst) {
#if defined(__SSE2__)
  const auto* from = static_cast<const __m128i*>(line);
  auto* to = reinterpret_cast<__m128i*>(dst);
  for (size_t i = 0; i < kLineBytes / sizeof(__m128i); ++i) {
    _mm_stream_si128(to + i, _mm_load_si128(from + i));
  }
#else
  std::memcpy(dst, line, kLineBytes);
#endif
}

// Ends writing around the cache: when it returns, the written bytes may be
// given to other threads and devices.
void EndStoresAroundCache() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// Transposes: the source's elements are adjacent along `columns`, the
// destination's along `rows`.
template <typename T>
class Transposition {
 public:
  Transposition(CopyEnds ends, const CopyLoop& rows, const CopyLoop& columns)
      : ends_(ends), rows_(rows), columns_(columns) {}

  void Run() {
    // The destination lines that are filled together should be cache lines.
    const uint64_t before_line =
        (kLineBytes - reinterpret_cast<uintptr_t>(ends_.dst) % kLineBytes) %
        kLineBytes;
    const bool is_aligned =
        columns_.dst_stride % kLineBytes == 0 && before_line % sizeof(T) == 0;
    const uint64_t head =
        is_aligned ? std::min(rows_.count, before_line / sizeof(T)) : 0;
    goes_around_cache_ = is_aligned && columns_.count * columns_.dst_stride >=
                                           kMinBytesAroundCache;
    CopyBlocks({0, head});
    CopyBlocks({head, rows_.count});
    if (goes_around_cache_) EndStoresAroundCache();
  }

 private:
  static constexpr uint64_t kSize = Tile<T>::kSize;
  // A block of tiles touches few enough pages that their addresses are at hand.
  static constexpr uint64_t kBlockRows = 256;
  static constexpr uint64_t kBlockColumns = 1024 / sizeof(T);
  // Smaller ranges may be needed again while they are in the cache.
  static constexpr uint64_t kMinBytesAroundCache = 256 << 10;
  // Smaller parts of a tile are copied element by element: to transpose the
  // whole tile would take longer.
  static constexpr uint64_t kMinOfTile = kSize * kSize / 8;

  struct Range {
    uint64_t begin;
    uint64_t end;

    uint64_t size() const { return end - begin; }
    // The part of this that begins at `at` and has at most `most` elements.
    Range From(uint64_t at, uint64_t most) const {
      return {at, std::min(end, at + most)};
    }
  };

  void CopyBlocks(Range rows) {
    for (uint64_t i = rows.begin; i < rows.end; i += kBlockRows) {
      for (uint64_t j = 0; j < columns_.count; j += kBlockColumns) {
        CopyBlock(rows.From(i, kBlockRows),
                  Range{0, columns_.count}.From(j, kBlockColumns));
      }
    }
  }

  void CopyBlock(Range rows, Range columns) {
    for (uint64_t i = rows.begin; i < rows.end; i += kSize) {
      for (uint64_t j = columns.begin; j < columns.end; j += kSize) {
        const Range tile_rows = rows.From(i, kSize);
        const Range tile_columns = columns.From(j, kSize);
        const uint64_t size = tile_rows.size() * tile_columns.size();
        if (size == kSize * kSize) {
          CopyTile(i, j);
        } else if (size >= kMinOfTile) {
          CopyPartOfTile(tile_rows, tile_columns);
        } else {
          CopyElements(tile_rows, tile_columns);
        }
      }
    }
  }

  void CopyTile(uint64_t row, uint64_t column) {
    Tile<T> in;
    Tile<T> out;
    const uint8_t* src = SrcAddress(row, column);
    for (uint64_t i = 0; i < kSize; ++i) {
      std::memcpy(in.rows[i], src + i * rows_.src_stride, kLineBytes);
    }
    TransposeTile(in, out);
    uint8_t* dst = DstAddress(row, column);
    for (uint64_t j = 0; j < kSize; ++j, dst += columns_.dst_stride) {
      if (goes_around_cache_) {
        StoreAroundCache(out.rows[j], dst);
      } else {
        std::memcpy(dst, out.rows[j], kLineBytes);
      }
    }
  }

  // The rows and columns at the ends, which do not fill a tile.
  void CopyPartOfTile(Range rows, Range columns) {
    Tile<T> in = {};
    Tile<T> out;
    for (uint64_t i = 0; i < rows.size(); ++i) {
      std::memcpy(in.rows[i], SrcAddress(rows.begin + i, columns.begin),
                  columns.size() * sizeof(T));
    }
    TransposeTile(in, out);
    for (uint64_t j = 0; j < columns.size(); ++j) {
      std::memcpy(DstAddress(rows.begin, columns.begin + j), out.rows[j],
                  rows.size() * sizeof(T));
    }
  }

  void CopyElements(Range rows, Range columns) {
    for (uint64_t row = rows.begin; row < rows.end; ++row) {
      for (uint64_t column = columns.begin; column < columns.end; ++column) {
        CopyElement<T>(SrcAddress(row, column), DstAddress(row, column));
      }
    }
  }

  const uint8_t* SrcAddress(uint64_t row, uint64_t column) const {
    return ends_.src + row * rows_.src_stride + column * sizeof(T);
  }
  uint8_t* DstAddress(uint64_t row, uint64_t column) const {
    return ends_.dst + column * columns_.dst_stride + row * sizeof(T);
  }

  const CopyEnds ends_;
  const CopyLoop rows_;
  const CopyLoop columns_;
  bool goes_around_cache_ = false;
};

// Copies the elements of two loops in squares that fit into the cache.
template <typename T>
void CopySquares(CopyEnds ends, const CopyLoop& inner, const CopyLoop& outer) {
  constexpr uint64_t kSize = 32;
  for (uint64_t i = 0; i < inner.count; i += kSize) {
    const uint64_t width = std::min(kSize, inner.count - i);
    for (uint64_t j = 0; j < outer.count; ++j) {
      CopyLine<T>({ends.src + i * inner.src_stride + j * outer.src_stride,
                   ends.dst + i * inner.dst_stride + j * outer.dst_stride},
                  {width, inner.src_stride, inner.dst_stride});
    }
  }
}

// The outermost in the destination comes first.
void SortByDestination(Loops& loops) {
  std::sort(loops.begin(), loops.end(),
            [](const CopyLoop& a, const CopyLoop& b) {
              return a.dst_stride > b.dst_stride;
            });
}

// Removes the two loops with the smallest steps from `loops`, to make them the
// innermost: first the destination's, then the source's, which has a count of 1
// if they are the same.
struct InnerLoops {
  CopyLoop dst;
  CopyLoop src;
};

InnerLoops TakeInner(Loops& loops) {
  SortByDestination(loops);
  InnerLoops inner{.dst = loops.back(), .src = {}};
  loops.pop_back();
  auto smallest = loops.end();
  for (auto loop = loops.begin(); loop != loops.end(); ++loop) {
    if (loop->src_stride != 0 && loop->src_stride < inner.dst.src_stride &&
        (smallest == loops.end() || loop->src_stride < smallest->src_stride)) {
      smallest = loop;
    }
  }
  if (smallest != loops.end()) {
    inner.src = *smallest;
    loops.erase(smallest);
  }
  return inner;
}

template <typename T>
void CopyElements(CopyEnds ends, Loops loops) {
  const InnerLoops inner = TakeInner(loops);
  ForEachStep(loops, ends, [&](CopyEnds at) {
    if (inner.src.count == 1) {
      CopyLine<T>(at, inner.dst);
    } else if (inner.dst.dst_stride == sizeof(T) &&
               inner.src.src_stride == sizeof(T)) {
      Transposition<T>(at, inner.dst, inner.src).Run();
    } else {
      CopySquares<T>(at, inner.dst, inner.src);
    }
  });
}

// The loops that take more than one step; nullopt if one takes no step, so that
// there is nothing to copy.
std::optional<Loops> LoopsThatStep(absl::Span<const CopyLoop> loops) {
  Loops steps;
  for (const CopyLoop& loop : loops) {
    if (loop.count == 0) return std::nullopt;
    if (loop.count > 1) steps.push_back(loop);
  }
  return steps;
}

// Removes from `loops` those over units that are adjacent on both sides, and
// returns how many units they join.
uint64_t TakeAdjacent(uint64_t unit_bytes, Loops& loops) {
  uint64_t count = 1;
  for (auto loop = loops.begin(); loop != loops.end();) {
    if (loop->src_stride != count * unit_bytes ||
        loop->dst_stride != count * unit_bytes) {
      ++loop;
      continue;
    }
    count *= loop->count;
    loops.erase(loop);
    loop = loops.begin();
  }
  return count;
}

// For units that are not elements of any type: copies each separately, in
// destination order.
void CopyUnits(CopyEnds ends, uint64_t unit_bytes, Loops loops) {
  SortByDestination(loops);
  ForEachStep(loops, ends, [unit_bytes](CopyEnds at) {
    std::memcpy(at.dst, at.src, unit_bytes);
  });
}

// Transforms a nest in blocks that fit into a buffer: gathers a block's
// elements, transforms them, and scatters them.
class BlockTransform {
 public:
  BlockTransform(const ElementTransform& transform, uint64_t unit,
                 const InnerLoops& inner, uint64_t* num_beyond)
      : transform_(transform),
        src_bytes_(ElementSize(transform.from)),
        dst_bytes_(ElementSize(transform.to)),
        unit_(unit),
        inner_(inner),
        num_beyond_(num_beyond) {
    // A square for a transposition; a line if there is no second loop.
    const uint64_t most = kMost / unit;
    width_ = inner.src.count > 1 ? std::min(most, kWidth) : most;
    width_ = std::min(inner.dst.count, width_);
    height_ = std::min(inner.src.count, most / width_);
  }

  void Run(CopyEnds ends) {
    for (uint64_t row = 0; row < inner_.src.count; row += height_) {
      for (uint64_t column = 0; column < inner_.dst.count; column += width_) {
        RunBlock({ends.src + row * inner_.src.src_stride +
                      column * inner_.dst.src_stride,
                  ends.dst + row * inner_.src.dst_stride +
                      column * inner_.dst.dst_stride},
                 std::min(height_, inner_.src.count - row),
                 std::min(width_, inner_.dst.count - column));
      }
    }
  }

  // Longer units are not gathered.
  static constexpr uint64_t kMaxUnit = 32;

 private:
  static constexpr uint64_t kMost = 4096;  // elements in a buffer
  static constexpr uint64_t kWidth = 64;

  void RunBlock(CopyEnds ends, uint64_t height, uint64_t width) {
    const uint64_t src_unit = unit_ * src_bytes_;
    const uint64_t dst_unit = unit_ * dst_bytes_;
    const CopyLoop gather[] = {
        {height, inner_.src.src_stride, width * src_unit},
        {width, inner_.dst.src_stride, src_unit}};
    CopyStrided({ends.src, gathered_}, src_unit, gather);
    TransformElements(transform_, gathered_, transformed_,
                      height * width * unit_, num_beyond_);
    const CopyLoop scatter[] = {
        {height, width * dst_unit, inner_.src.dst_stride},
        {width, dst_unit, inner_.dst.dst_stride}};
    CopyStrided({transformed_, ends.dst}, dst_unit, scatter);
  }

  const ElementTransform transform_;
  const uint64_t src_bytes_;
  const uint64_t dst_bytes_;
  const uint64_t unit_;
  const InnerLoops inner_;
  uint64_t* const num_beyond_;
  uint64_t width_;   // in a block, along inner_.dst
  uint64_t height_;  // along inner_.src
  alignas(kLineBytes) uint8_t gathered_[kMost * 16];
  alignas(kLineBytes) uint8_t transformed_[kMost * 16];
};

}  // namespace

void CopyStrided(CopyEnds ends, uint64_t unit_bytes,
                 absl::Span<const CopyLoop> loops) {
  std::optional<Loops> steps = LoopsThatStep(loops);
  if (!steps.has_value()) return;
  unit_bytes *= TakeAdjacent(unit_bytes, *steps);
  if (steps->empty()) {
    std::memcpy(ends.dst, ends.src, unit_bytes);
    return;
  }
  switch (unit_bytes) {
    case 1:
      return CopyElements<uint8_t>(ends, *std::move(steps));
    case 2:
      return CopyElements<uint16_t>(ends, *std::move(steps));
    case 4:
      return CopyElements<uint32_t>(ends, *std::move(steps));
    case 8:
      return CopyElements<uint64_t>(ends, *std::move(steps));
    case 16:
      return CopyElements<Element16>(ends, *std::move(steps));
    default:
      return CopyUnits(ends, unit_bytes, *std::move(steps));
  }
}

void TransformStrided(const ElementTransform& transform, CopyEnds ends,
                      uint64_t unit, absl::Span<const CopyLoop> loops,
                      uint64_t* num_beyond) {
  std::optional<Loops> steps = LoopsThatStep(loops);
  if (!steps.has_value()) return;
  if (steps->empty() || unit > BlockTransform::kMaxUnit) {
    SortByDestination(*steps);
    ForEachStep(*steps, ends, [&](CopyEnds at) {
      TransformElements(transform, at.src, at.dst, unit, num_beyond);
    });
    return;
  }
  const InnerLoops inner = TakeInner(*steps);
  BlockTransform block(transform, unit, inner, num_beyond);
  ForEachStep(*steps, ends, [&](CopyEnds at) { block.Run(at); });
}

}  // namespace dcp
