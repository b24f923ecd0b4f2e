// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/assembly/tensor_assembly.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "dcp/base/check.h"
#include "dcp/plan/strided/copy_run.h"

namespace dcp {

TensorAssembly::TensorAssembly(Dims shape, DType dtype, std::vector<Box> parts)
    : shape_(std::move(shape)),
      parts_(std::move(parts)),
      element_bytes_(ElementSize(dtype)),
      num_elements_(static_cast<uint64_t>(Volume(shape_))),
      window_elements_(kAssemblyWindowBytes / element_bytes_) {}

uint64_t TensorAssembly::num_windows() const {
  return (num_elements_ + window_elements_ - 1) / window_elements_;
}

TensorAssembly::Stretch TensorAssembly::WindowAt(uint64_t window) const {
  const uint64_t begin = window * window_elements_;
  const uint64_t end = std::min(begin + window_elements_, num_elements_);
  return {begin * element_bytes_, end * element_bytes_};
}

TensorAssembly::Stretch TensorAssembly::Needed(uint64_t window,
                                               size_t part) const {
  const auto [begin, end] = WindowAt(window);
  return {ElementsBefore(parts_[part], begin / element_bytes_) * element_bytes_,
          ElementsBefore(parts_[part], end / element_bytes_) * element_bytes_};
}

uint64_t TensorAssembly::ElementsBefore(const Box& part,
                                        uint64_t number) const {
  if (number >= num_elements_) return static_cast<uint64_t>(Volume(part.sizes));
  // Beginning with the first dimension: adds the elements in earlier slices of
  // this dimension, as long as the element's own slices are in the part.
  uint64_t whole_below = num_elements_;
  auto part_below = static_cast<uint64_t>(Volume(part.sizes));
  if (part_below == 0) return 0;
  uint64_t before = 0;
  for (size_t d = 0; d < shape_.size(); ++d) {
    whole_below /= static_cast<uint64_t>(shape_[d]);
    part_below /= static_cast<uint64_t>(part.sizes[d]);
    const auto index = static_cast<int64_t>(number / whole_below);
    number %= whole_below;
    const int64_t slices =
        std::clamp<int64_t>(index - part.offsets[d], 0, part.sizes[d]);
    before += static_cast<uint64_t>(slices) * part_below;
    if (index < part.offsets[d] || slices == part.sizes[d]) break;
  }
  return before;
}

void TensorAssembly::Place(uint64_t window, size_t part, ByteSpan bytes,
                           MutableByteSpan dst) const {
  const Stretch whole = WindowAt(window);
  const Stretch needed = Needed(window, part);
  DCP_CHECK(bytes.size() == needed.length() && dst.size() == whole.length(),
            bytes.size(), " bytes of a part in a window of ", dst.size());
  if (bytes.empty()) return;
  const Window target{.box = WholeBox(shape_),
                      .first = whole.begin / element_bytes_,
                      .num_elements = whole.length() / element_bytes_,
                      .element_bytes = static_cast<uint32_t>(element_bytes_)};
  const Box& box = parts_[part];
  const ChunkView view{.box = box,
                       .strides = RowMajorStrides(box.sizes),
                       .element_bytes = static_cast<uint32_t>(element_bytes_)};
  const std::optional<Box> overlap = Intersect(
      WindowBounds(target.box, target.first, target.num_elements), box);
  DCP_CHECK(overlap.has_value(), ToString(box));
  std::vector<CopyRun> runs;
  AppendCopyRuns(target, view, *overlap, runs);
  for (const CopyRun& run : runs) {
    ApplyRun(run, needed.begin, needed.length(), bytes,
             [&](const uint8_t* src, uint64_t at, uint64_t num_elements) {
               std::memcpy(dst.data() + at, src, num_elements * element_bytes_);
             });
  }
}

}  // namespace dcp
