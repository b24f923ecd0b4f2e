// SPDX-License-Identifier: Apache-2.0
// Extent: a strided view's bytes. Two views of one matrix, such as neighbouring
// columns, may lie between the same first and last byte and yet share none:
// Overlaps is exact. A value; any thread.
#ifndef TESTS_TESTING_SIM_DEVICE_EXTENT_H_
#define TESTS_TESTING_SIM_DEVICE_EXTENT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "c10/util/ArrayRef.h"

namespace sim {

class Extent {
 public:
  // No bytes.
  Extent() = default;
  // Bytes [begin, end).
  Extent(uintptr_t begin, uintptr_t end)
      : begin_(begin), end_(end), run_(end - begin) {}
  // `strides` count elements, `element_bytes` each.
  Extent(const void* data, c10::IntArrayRef sizes, c10::IntArrayRef strides,
         size_t element_bytes);

  bool empty() const { return begin_ == end_; }
  // Without the gaps.
  uint64_t num_bytes() const { return NumRuns() * run_; }
  // The first byte, and the byte after the last.
  uintptr_t begin() const { return begin_; }
  uintptr_t end() const { return end_; }

  // Exact, except where a view overlaps itself, or has more than 2^16 separate
  // runs of bytes: then all bytes from begin() to end() count.
  bool Overlaps(const Extent& other) const;
  // Whether each byte of `other` is known to be one of these.
  bool Covers(const Extent& other) const;

 private:
  // `count` copies of the inner part, `stride` bytes apart.
  struct Dim {
    uint64_t count;
    uint64_t stride;
    bool operator==(const Dim&) const = default;
  };

  uint64_t NumRuns() const;
  bool HasByteIn(uintptr_t begin, uintptr_t end, size_t dim,
                 uintptr_t base) const;
  // Bytes from the first to the last one inside dimension `dim` - 1.
  uint64_t SpanFrom(size_t dim) const;

  uintptr_t begin_ = 0;
  uintptr_t end_ = 0;
  std::vector<Dim>
      dims_;          // outermost first; each stride exceeds the inner part
  uint64_t run_ = 0;  // contiguous bytes in the innermost part
};

}  // namespace sim

#endif  // TESTS_TESTING_SIM_DEVICE_EXTENT_H_
