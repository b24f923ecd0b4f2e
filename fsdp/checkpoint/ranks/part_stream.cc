// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/ranks/part_stream.h"

#include <algorithm>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/from_blob.h"
#include "absl/functional/function_ref.h"

namespace fsdp {
namespace {

// Visits elements [begin, end) of `tensor` in row-major order, as views that
// are full boxes: at most 2 * dimensions + 2 views.
void ForEachBox(const at::Tensor& tensor, int64_t begin, int64_t end,
                absl::FunctionRef<void(const at::Tensor& view)> visit) {
  if (begin >= end) return;
  if (begin == 0 && end == tensor.numel()) return visit(tensor);
  if (tensor.is_contiguous()) {
    return visit(tensor.view({-1}).narrow(0, begin, end - begin));
  }
  const int64_t row = tensor.numel() / tensor.size(0);
  if (begin % row != 0) {
    const int64_t index = begin / row;
    const int64_t row_end = std::min(end, (index + 1) * row);
    ForEachBox(tensor[index], begin - index * row, row_end - index * row,
               visit);
    begin = row_end;
  }
  const int64_t num_rows = (end - begin) / row;
  if (num_rows > 0) {
    visit(tensor.narrow(0, begin / row, num_rows));
    begin += num_rows * row;
  }
  if (begin < end) ForEachBox(tensor[begin / row], 0, end - begin, visit);
}

at::Tensor Wrap(const void* bytes, const at::Tensor& like,
                at::ScalarType type) {
  return at::from_blob(const_cast<void*>(bytes), like.sizes(),
                       at::TensorOptions(type));
}

}  // namespace

void PartStream::Add(const at::Tensor& part, at::ScalarType wire_type) {
  const uint64_t num_bytes =
      static_cast<uint64_t>(part.numel()) * c10::elementSize(wire_type);
  parts_.push_back({part, wire_type, num_bytes_, num_bytes});
  num_bytes_ = dcp::AlignUp(num_bytes_ + num_bytes, kAlignment);
}

template <typename Visit>
void PartStream::ForEachView(uint64_t offset, uint64_t length,
                             Visit visit) const {
  const uint64_t end = offset + length;
  auto part = std::partition_point(
      parts_.begin(), parts_.end(),
      [&](const Part& p) { return p.begin + p.num_bytes <= offset; });
  for (; part != parts_.end() && part->begin < end; ++part) {
    const uint64_t item = c10::elementSize(part->wire_type);
    const uint64_t first = std::max(offset, part->begin);
    const uint64_t last = std::min(end, part->begin + part->num_bytes);
    if (first >= last) continue;
    uint64_t position = first - offset;
    ForEachBox(part->tensor, static_cast<int64_t>((first - part->begin) / item),
               static_cast<int64_t>((last - part->begin) / item),
               [&](const at::Tensor& view) {
                 visit(view, part->wire_type, position);
                 position += static_cast<uint64_t>(view.numel()) * item;
               });
  }
}

void PartStream::Read(uint64_t offset, dcp::MutableByteSpan dst) const {
  const at::NoGradGuard no_grad;
  ForEachView(
      offset, dst.size(),
      [&](const at::Tensor& view, at::ScalarType type, uint64_t position) {
        Wrap(dst.data() + position, view, type).copy_(view);
      });
}

void PartStream::Write(uint64_t offset, dcp::ByteSpan src) const {
  const at::NoGradGuard no_grad;
  ForEachView(
      offset, src.size(),
      [&](const at::Tensor& view, at::ScalarType type, uint64_t position) {
        view.copy_(Wrap(src.data() + position, view, type));
      });
}

}  // namespace fsdp
