// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/strided/copy_run.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/tensor/box.h"

namespace dcp {
namespace {

// The tensor coordinates for element `index` in the box's row-major image.
Dims ElementCoordinates(const Box& box, const Dims& strides, uint64_t index) {
  Dims coordinates = box.offsets;
  for (size_t d = 0; d < strides.size(); ++d) {
    const uint64_t stride = ToUnsigned(strides[d]);
    coordinates[d] += static_cast<int64_t>(index / stride);
    index %= stride;
  }
  return coordinates;
}

// Calls visit(box) for boxes that together are elements [first, end) in the
// row-major image of `box`, in order. There are at most two per dimension: they
// grow to whole rows, planes and so on, and shrink again.
template <typename Visit>
void ForEachRangeBox(const Box& box, uint64_t first, uint64_t end,
                     const Visit& visit) {
  const Dims strides = RowMajorStrides(box.sizes);
  const size_t num_dims = strides.size();
  while (first < end) {
    // The outermost dimension along which at least one step can be taken.
    size_t d = 0;
    while (d < num_dims && (first % ToUnsigned(strides[d]) != 0 ||
                            end - first < ToUnsigned(strides[d]))) {
      ++d;
    }
    Box part{.offsets = ElementCoordinates(box, strides, first),
             .sizes = Dims(num_dims, 1)};
    uint64_t num_elements = 1;  // without dimensions there is one
    if (d < num_dims) {
      const uint64_t stride = ToUnsigned(strides[d]);
      const int64_t left = box.offsets[d] + box.sizes[d] - part.offsets[d];
      const uint64_t steps = std::min(ToUnsigned(left), (end - first) / stride);
      part.sizes[d] = static_cast<int64_t>(steps);
      std::copy(box.sizes.begin() + static_cast<std::ptrdiff_t>(d + 1),
                box.sizes.end(),
                part.sizes.begin() + static_cast<std::ptrdiff_t>(d + 1));
      num_elements = steps * stride;
    }
    visit(part);
    first += num_elements;
  }
}

// A loop in a copy: `size` steps, which advance each side by this many bytes.
struct Loop {
  uint64_t size;
  uint64_t src_stride;
  uint64_t dst_stride;
};

using Loops = absl::InlinedVector<Loop, 4>;

// The loops over the dimensions of `part`, outermost first. A loop is merged
// with the next inner one if, on both sides, it continues where that one ends.
Loops MergedLoops(const Window& window, const ChunkView& chunk,
                  const Box& part) {
  const Dims dst_strides = RowMajorStrides(window.box.sizes);
  Loops loops;
  for (size_t d = part.sizes.size(); d-- > 0;) {
    if (part.sizes[d] == 1) continue;
    const Loop loop{
        .size = ToUnsigned(part.sizes[d]),
        .src_stride = ToUnsigned(chunk.strides[d]) * chunk.element_bytes,
        .dst_stride = ToUnsigned(dst_strides[d]) * window.element_bytes};
    if (!loops.empty() &&
        loop.src_stride == loops.back().size * loops.back().src_stride &&
        loop.dst_stride == loops.back().size * loops.back().dst_stride) {
      loops.back().size *= loop.size;
    } else {
      loops.push_back(loop);
    }
  }
  std::reverse(loops.begin(), loops.end());
  return loops;
}

// The one-unit run that copies the part's first element.
CopyRun FirstElement(const Window& window, const ChunkView& chunk,
                     const Box& part) {
  const Dims dst_strides = RowMajorStrides(window.box.sizes);
  uint64_t src = 0;
  uint64_t dst = 0;
  for (size_t d = 0; d < part.offsets.size(); ++d) {
    src += ToUnsigned(part.offsets[d] - chunk.box.offsets[d]) *
           ToUnsigned(chunk.strides[d]);
    dst += ToUnsigned(part.offsets[d] - window.box.offsets[d]) *
           ToUnsigned(dst_strides[d]);
  }
  return {.file = chunk.file,
          .tag = window.tag,
          .src = chunk.offset + src * chunk.element_bytes,
          .dst = window.dst + (dst - window.first) * window.element_bytes,
          .unit = 1,
          .count = 1,
          .src_stride = 0,
          .dst_stride = 0,
          .src_element_bytes = chunk.element_bytes,
          .dst_element_bytes = window.element_bytes};
}

// Appends `run`. If it continues where the last run (with index `first` or
// higher) ends, lengthens that one instead.
void Append(const CopyRun& run, size_t first, std::vector<CopyRun>& runs) {
  if (runs.size() > first) {
    CopyRun& last = runs.back();
    if (last.count == 1 && run.count == 1 &&
        last.src + last.unit * last.src_element_bytes == run.src &&
        last.dst + last.unit * last.dst_element_bytes == run.dst) {
      last.unit += run.unit;
      return;
    }
  }
  runs.push_back(run);
}

// Appends `run` once for every combination of steps in `loops`.
void AppendRepeated(const Loops& loops, const CopyRun& run, size_t first,
                    std::vector<CopyRun>& runs) {
  absl::InlinedVector<uint64_t, 4> step(loops.size(), 0);
  CopyRun current = run;
  while (true) {
    Append(current, first, runs);
    // Like an odometer: when the innermost loop reaches the end, the next one
    // steps.
    size_t i = loops.size();
    while (i > 0) {
      --i;
      current.src += loops[i].src_stride;
      current.dst += loops[i].dst_stride;
      if (++step[i] < loops[i].size) break;
      current.src -= loops[i].size * loops[i].src_stride;
      current.dst -= loops[i].size * loops[i].dst_stride;
      step[i] = 0;
      if (i == 0) return;
    }
    if (loops.empty()) return;
  }
}

// The runs for a box inside window, chunk and overlap.
void AppendBox(const Window& window, const ChunkView& chunk, const Box& part,
               size_t first, std::vector<CopyRun>& runs) {
  CopyRun run = FirstElement(window, chunk, part);
  Loops loops = MergedLoops(window, chunk, part);
  if (!loops.empty() && loops.back().src_stride == chunk.element_bytes &&
      loops.back().dst_stride == window.element_bytes) {
    run.unit = loops.back().size;
    loops.pop_back();
  }
  if (!loops.empty()) {
    // The longest loop leaves the fewest runs. Among equals the innermost is
    // taken, because its destinations lie closest together.
    auto longest = loops.end() - 1;
    for (auto loop = loops.begin(); loop != loops.end(); ++loop) {
      if (loop->size > longest->size) longest = loop;
    }
    run.count = longest->size;
    run.src_stride = longest->src_stride;
    run.dst_stride = longest->dst_stride;
    loops.erase(longest);
  }
  AppendRepeated(loops, run, first, runs);
}

// Units [first, last) in `run` with an element that begins inside [begin, end).
// Begins grow with the unit's number, as strides are not negative.
struct Units {
  uint64_t first;
  uint64_t last;
};

Units UnitsIn(const CopyRun& run, uint64_t begin, uint64_t end) {
  if (run.unit == 0 || run.count == 0 || end <= run.src) return {0, 0};
  // A unit's last element decides whether the unit reaches into the window, the
  // first one whether it still begins there.
  const uint64_t last_element =
      run.src + (run.unit - 1) * run.src_element_bytes;
  if (run.src_stride == 0) {
    return {0, last_element >= begin ? run.count : 0};
  }
  const uint64_t first = last_element >= begin
                             ? 0
                             : DivideUp(begin - last_element, run.src_stride);
  const uint64_t last =
      std::min(run.count, DivideUp(end - run.src, run.src_stride));
  return {first, std::max(first, last)};
}

}  // namespace

void AppendCopyRuns(const Window& window, const ChunkView& chunk,
                    const Box& overlap, std::vector<CopyRun>& runs) {
  DCP_DCHECK(chunk.strides.size() == chunk.box.sizes.size(),
             "strides of another tensor");
  const size_t first = runs.size();
  ForEachRangeBox(window.box, window.first, window.first + window.num_elements,
                  [&](const Box& range) {
                    const std::optional<Box> part = Intersect(range, overlap);
                    if (part.has_value()) {
                      AppendBox(window, chunk, *part, first, runs);
                    }
                  });
}

Box WindowBounds(const Box& box, uint64_t first, uint64_t num_elements) {
  const size_t num_dims = box.sizes.size();
  if (num_elements == 0) {
    return {.offsets = box.offsets, .sizes = Dims(num_dims, 0)};
  }
  const Dims strides = RowMajorStrides(box.sizes);
  const Dims begin = ElementCoordinates(box, strides, first);
  const Dims last = ElementCoordinates(box, strides, first + num_elements - 1);
  Box bounds{.offsets = begin, .sizes = Dims(num_dims, 1)};
  size_t d = 0;
  while (d < num_dims && begin[d] == last[d]) ++d;
  if (d == num_dims) return bounds;
  bounds.sizes[d] = last[d] - begin[d] + 1;
  // A step along d passes the end in all dimensions further in.
  for (++d; d < num_dims; ++d) {
    bounds.offsets[d] = box.offsets[d];
    bounds.sizes[d] = box.sizes[d];
  }
  return bounds;
}

uint64_t SourceExtent(const CopyRun& run) {
  if (run.unit == 0 || run.count == 0) return 0;
  return (run.count - 1) * run.src_stride + run.unit * run.src_element_bytes;
}

bool HasElementIn(const CopyRun& run, uint64_t window_offset,
                  uint64_t window_length) {
  const uint64_t window_end = window_offset + window_length;
  const Units units = UnitsIn(run, window_offset, window_end);
  if (units.first >= units.last) return false;
  if (run.src + (units.last - 1) * run.src_stride >= window_offset) return true;
  // All units began earlier; the window may lie between two elements. As
  // strides are multiples of elements, this holds for all units or for none.
  const uint64_t src = run.src + units.first * run.src_stride;
  const uint64_t skipped = DivideUp(window_offset - src, run.src_element_bytes);
  return src + skipped * run.src_element_bytes < window_end;
}

void ApplyRun(const CopyRun& run, uint64_t window_offset,
              uint64_t window_length, ByteSpan data,
              absl::FunctionRef<void(const uint8_t* src, uint64_t dst,
                                     uint64_t num_elements)>
                  copy) {
  const uint64_t window_end = window_offset + window_length;
  const Units units = UnitsIn(run, window_offset, window_end);
  const uint64_t unit_bytes = run.unit * run.src_element_bytes;
  for (uint64_t u = units.first; u < units.last; ++u) {
    const uint64_t src = run.src + u * run.src_stride;
    const uint64_t dst = run.dst + u * run.dst_stride;
    if (src >= window_offset && src + unit_bytes <= window_end) {
      copy(data.data() + (src - window_offset), dst, run.unit);
      continue;
    }
    // Only the elements that begin inside the window; the last may end in the
    // margin.
    const uint64_t first =
        src >= window_offset
            ? 0
            : DivideUp(window_offset - src, run.src_element_bytes);
    const uint64_t last =
        std::min(run.unit, DivideUp(window_end - src, run.src_element_bytes));
    if (first >= last) continue;
    DCP_DCHECK(
        src + last * run.src_element_bytes <= window_offset + data.size(),
        "the window lacks its margin");
    copy(data.data() + (src + first * run.src_element_bytes - window_offset),
         dst + first * run.dst_element_bytes, last - first);
  }
}

}  // namespace dcp
