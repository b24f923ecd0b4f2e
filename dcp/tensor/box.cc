// SPDX-License-Identifier: Apache-2.0

#include "dcp/tensor/box.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/check.h"

namespace dcp {

Box WholeBox(absl::Span<const int64_t> shape) {
  return {.offsets = Dims(shape.size(), 0),
          .sizes = Dims(shape.begin(), shape.end())};
}

std::optional<int64_t> CheckedVolume(absl::Span<const int64_t> sizes) {
  // A zero must not hide sizes whose strides would overflow.
  int64_t volume = 1;
  bool empty = false;
  for (const int64_t size : sizes) {
    if (size < 0) return std::nullopt;
    empty |= size == 0;
    if (__builtin_mul_overflow(volume, std::max<int64_t>(size, 1), &volume)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : volume;
}

int64_t Volume(absl::Span<const int64_t> sizes) {
  int64_t volume = 1;
  for (const int64_t size : sizes) volume *= size;
  return volume;
}

std::optional<Box> Intersect(const Box& a, const Box& b) {
  const size_t num_dims = a.offsets.size();
  DCP_DCHECK(b.offsets.size() == num_dims, "dimensions differ");
  Box common;
  common.offsets.resize(num_dims);
  common.sizes.resize(num_dims);
  for (size_t d = 0; d < num_dims; ++d) {
    const int64_t begin = std::max(a.offsets[d], b.offsets[d]);
    const int64_t end =
        std::min(a.offsets[d] + a.sizes[d], b.offsets[d] + b.sizes[d]);
    if (begin >= end) return std::nullopt;
    common.offsets[d] = begin;
    common.sizes[d] = end - begin;
  }
  return common;
}

bool Contains(const Box& outer, const Box& inner) {
  const size_t num_dims = outer.offsets.size();
  if (inner.offsets.size() != num_dims || inner.sizes.size() != num_dims) {
    return false;
  }
  for (size_t d = 0; d < num_dims; ++d) {
    int64_t outer_end;
    int64_t inner_end;
    if (__builtin_add_overflow(outer.offsets[d], outer.sizes[d], &outer_end) ||
        __builtin_add_overflow(inner.offsets[d], inner.sizes[d], &inner_end)) {
      return false;
    }
    if (inner.sizes[d] < 0 || inner.offsets[d] < outer.offsets[d] ||
        inner_end > outer_end) {
      return false;
    }
  }
  return true;
}

Dims IndexOfElement(uint64_t number, absl::Span<const int64_t> shape) {
  Dims index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    const uint64_t size = ToUnsigned(shape[d]);
    index[d] = static_cast<int64_t>(number % size);
    number /= size;
  }
  return index;
}

Dims RowMajorStrides(absl::Span<const int64_t> sizes) {
  Dims strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * std::max<int64_t>(sizes[d], 1);
  }
  return strides;
}

std::string ToString(const Box& box) {
  std::string text = "[";
  for (size_t d = 0; d < box.offsets.size(); ++d) {
    absl::StrAppend(&text, d == 0 ? "" : ", ", box.offsets[d], ":");
    int64_t end;
    // Messages also show hostile boxes, and those may have ends that overflow.
    if (__builtin_add_overflow(box.offsets[d], box.sizes[d], &end)) {
      absl::StrAppend(&text, box.offsets[d], "+", box.sizes[d]);
    } else {
      absl::StrAppend(&text, end);
    }
  }
  return text + "]";
}

std::string ShapeToString(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace dcp
