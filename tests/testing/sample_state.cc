// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/sample_state.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>

#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"

namespace dcp::testing {

absl::Status MemorySource::Fill(uint64_t offset, MutableByteSpan dst) {
  DCP_CHECK(offset + dst.size() <= bytes_.size(), "offset=", offset);
  if (num_filled_bytes_ + dst.size() > fail_after_bytes_) return failure_;
  num_filled_bytes_ += dst.size();
  pending_.emplace_back(offset, dst);
  return absl::OkStatus();
}

absl::Status MemorySource::Flush() {
  for (const auto& [offset, dst] : pending_) {
    std::memcpy(dst.data(), bytes_.data() + offset, dst.size());
  }
  pending_.clear();
  return absl::OkStatus();
}

MutableByteSpan MemorySink::DirectSpan() {
  if (!direct_) return {};
  return {reinterpret_cast<uint8_t*>(bytes_.data()), bytes_.size()};
}

absl::Status MemorySink::Place(uint64_t offset, ByteSpan src) {
  DCP_CHECK(offset + src.size() <= bytes_.size(), "offset=", offset);
  if (!failure_.ok()) return failure_;
  num_placed_bytes_ += src.size();
  pending_.emplace_back(offset, src);
  return absl::OkStatus();
}

absl::Status MemorySink::Flush() {
  for (const auto& [offset, src] : pending_) {
    std::memcpy(bytes_.data() + offset, src.data(), src.size());
  }
  pending_.clear();
  return absl::OkStatus();
}

std::string RandomBytes(uint64_t seed, uint64_t num_bytes) {
  std::mt19937_64 random(seed);
  std::string bytes(AlignUp(num_bytes, 8), '\0');
  for (uint64_t at = 0; at < bytes.size(); at += 8) {
    const uint64_t word = random();
    std::memcpy(&bytes[at], &word, 8);
  }
  bytes.resize(num_bytes);
  return bytes;
}

SampleTensor::SampleTensor(std::string name, DType type, Dims dims,
                           uint64_t seed)
    : fqn(std::move(name)), dtype(type), shape(std::move(dims)) {
  const uint64_t mixed =
      seed + std::hash<std::string>()(absl::StrCat(fqn, ShapeToString(shape)));
  bytes = RandomBytes(
      mixed, static_cast<uint64_t>(Volume(shape)) * ElementSize(dtype));
}

std::string SampleTensor::BytesOf(const Box& box) const {
  const uint64_t element = ElementSize(dtype);
  const Dims strides = RowMajorStrides(shape);
  const Dims box_strides = RowMajorStrides(box.sizes);
  const int64_t volume = Volume(box.sizes);
  std::string part;
  part.reserve(static_cast<uint64_t>(volume) * element);
  for (int64_t i = 0; i < volume; ++i) {
    int64_t at = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      const int64_t index =
          box.offsets[d] +
          i / box_strides[d] % std::max<int64_t>(box.sizes[d], 1);
      at += index * strides[d];
    }
    part.append(bytes, static_cast<uint64_t>(at) * element, element);
  }
  return part;
}

MemorySource& SampleState::Add(const SampleTensor& tensor) {
  return Add(tensor, WholeBox(tensor.shape));
}

MemorySource& SampleState::Add(const SampleTensor& tensor, const Box& box) {
  sources_.push_back(std::make_unique<MemorySource>(
      box == WholeBox(tensor.shape) ? tensor.bytes : tensor.BytesOf(box)));
  state_.tensors.push_back({.fqn = tensor.fqn,
                            .path = {tensor.fqn},
                            .dtype = tensor.dtype,
                            .shape = tensor.shape,
                            .box = box,
                            .source = sources_.back().get()});
  return *sources_.back();
}

void SampleState::AddObject(absl::string_view fqn, Value value) {
  state_.objects.push_back(
      {.fqn = std::string(fqn), .path = {std::string(fqn)}, .value = value});
}

}  // namespace dcp::testing
