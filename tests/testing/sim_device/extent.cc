// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/sim_device/extent.h"

#include <algorithm>

namespace sim {
namespace {

constexpr uint64_t kMaxRuns = uint64_t{1} << 16;

}  // namespace

Extent::Extent(const void* data, c10::IntArrayRef sizes,
               c10::IntArrayRef strides, size_t element_bytes) {
  std::vector<Dim> dims;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return;
    if (sizes[i] == 1 || strides[i] == 0) continue;
    dims.push_back({static_cast<uint64_t>(sizes[i]),
                    static_cast<uint64_t>(strides[i]) * element_bytes});
  }
  std::sort(dims.begin(), dims.end(),
            [](const Dim& a, const Dim& b) { return a.stride < b.stride; });
  run_ = element_bytes;
  for (const Dim& dim : dims) {
    const uint64_t inside = SpanFrom(0);
    if (dim.stride < inside || (dims_.empty() && dim.stride == run_)) {
      // One run, or a view that overlaps itself.
      run_ = (dim.count - 1) * dim.stride + inside;
      dims_.clear();
    } else if (!dims_.empty() &&
               dim.stride == dims_.front().stride * dims_.front().count) {
      dims_.front().count *= dim.count;
    } else {
      dims_.insert(dims_.begin(), dim);
    }
  }
  begin_ = reinterpret_cast<uintptr_t>(data);
  end_ = begin_ + SpanFrom(0);
}

uint64_t Extent::SpanFrom(size_t dim) const {
  uint64_t span = run_;
  for (size_t i = dims_.size(); i-- > dim;) {
    span += (dims_[i].count - 1) * dims_[i].stride;
  }
  return span;
}

uint64_t Extent::NumRuns() const {
  uint64_t runs = 1;
  for (const Dim& dim : dims_) runs *= dim.count;
  return runs;
}

bool Extent::HasByteIn(uintptr_t begin, uintptr_t end, size_t dim,
                       uintptr_t base) const {
  const uint64_t span = SpanFrom(dim);
  if (end <= base || base + span <= begin) return false;
  if (dim == dims_.size() || (begin <= base && base + span <= end)) {
    return true;
  }
  const auto& [count, stride] = dims_[dim];
  const uint64_t inside = SpanFrom(dim + 1);
  uint64_t i = begin < base + inside ? 0 : (begin - base - inside) / stride + 1;
  for (; i < count && base + i * stride < end; ++i) {
    if (HasByteIn(begin, end, dim + 1, base + i * stride)) return true;
  }
  return false;
}

bool Extent::Overlaps(const Extent& other) const {
  if (empty() || other.empty() || end_ <= other.begin_ ||
      other.end_ <= begin_) {
    return false;
  }
  const bool fewer = NumRuns() <= other.NumRuns();
  const Extent& walked = fewer ? *this : other;
  const Extent& asked = fewer ? other : *this;
  if (walked.NumRuns() > kMaxRuns) return true;
  std::vector<uint64_t> index(walked.dims_.size(), 0);
  while (true) {
    uintptr_t run = walked.begin_;
    for (size_t i = 0; i < index.size(); ++i) {
      run += index[i] * walked.dims_[i].stride;
    }
    if (asked.HasByteIn(run, run + walked.run_, 0, asked.begin_)) return true;
    size_t i = index.size();
    while (i > 0 && ++index[i - 1] == walked.dims_[i - 1].count) {
      index[--i] = 0;
    }
    if (i == 0) return false;
  }
}

bool Extent::Covers(const Extent& other) const {
  if (other.empty()) return true;
  if (begin_ > other.begin_ || other.end_ > end_) return false;
  return dims_.empty() ||
         (begin_ == other.begin_ && run_ == other.run_ && dims_ == other.dims_);
}

}  // namespace sim
