// SPDX-License-Identifier: Apache-2.0
// Computes float8 codes and scales, one row of whole blocks at a time.
// Tested by tests/tools/dcp_convert/encode_options_test.cc.
#include "dcp/checkpoint/lens/block_encoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/tensor/element.h"

namespace dcp {
namespace {

constexpr int64_t kBlock = 128;
constexpr float kMaxFloat8 = 448;  // the largest float8_e4m3fn

// The most columns in a tile: whole blocks.
int64_t MaxColumns(DType dtype) {
  const auto most = static_cast<int64_t>(
      kMaxEncodedBytes / (static_cast<uint64_t>(kBlock) * ElementSize(dtype)));
  return most / kBlock * kBlock;
}

// The box of all values in the blocks that the window needs.
Box BlockBounds(const EncodedWindow& work) {
  Box bounds = WindowBounds(work.window.box, work.window.first,
                            work.window.num_elements);
  if (work.tensor->kind() == LensedTensor::Kind::kEncodedCodes) return bounds;
  const Dims& shape = work.tensor->values().shape;
  const Dims& block = work.tensor->block();
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t end = (bounds.offsets[i] + bounds.sizes[i]) * block[i];
    bounds.offsets[i] *= block[i];
    bounds.sizes[i] = std::min(end, shape[i]) - bounds.offsets[i];
  }
  return bounds;
}

void ToFloats(DType from, const uint8_t* src, float* dst, int64_t count) {
  TransformElements({.from = from, .to = DType::kFloat32}, src,
                    reinterpret_cast<uint8_t*>(dst),
                    static_cast<uint64_t>(count));
}

// The factor that multiplies a block's elements.
float BlockFactor(float greatest) {
  if (greatest == 0) return 1;
  const float factor = 1 / greatest * kMaxFloat8;
  // For very small numbers the inverse is beyond float32.
  return std::isfinite(factor) ? factor : std::numeric_limits<float>::max();
}

// The number of an element in the row-major image of `box`.
int64_t NumberIn(const Box& box, const Dims& index) {
  int64_t number = 0;
  for (size_t i = 0; i < index.size(); ++i) {
    number = number * box.sizes[i] + index[i] - box.offsets[i];
  }
  return number;
}

}  // namespace

void BlockEncoder::ForEachTile(const EncodedWindow& work,
                               absl::FunctionRef<void(const Box&)> visit) {
  const Box bounds = BlockBounds(work);
  if (Volume(bounds.sizes) == 0) return;
  const TensorEntry& values = work.tensor->values();
  const size_t row = bounds.sizes.size() - 2;
  const size_t column = row + 1;
  const int64_t max_columns = MaxColumns(values.dtype);
  const auto end_of = [&](size_t dim) {
    return bounds.offsets[dim] + bounds.sizes[dim];
  };
  const int64_t first_row = bounds.offsets[row] / kBlock * kBlock;
  const int64_t first_column = bounds.offsets[column] / kBlock * kBlock;
  const int64_t last_column =  // exclusive; the end of a whole block
      std::min((end_of(column) + kBlock - 1) / kBlock * kBlock,
               values.shape[column]);
  Box tile = bounds;
  for (size_t i = 0; i < row; ++i) tile.sizes[i] = 1;
  while (true) {
    for (int64_t r = first_row; r < end_of(row); r += kBlock) {
      tile.offsets[row] = r;
      tile.sizes[row] = std::min(kBlock, values.shape[row] - r);
      for (int64_t c = first_column; c < last_column; c += max_columns) {
        tile.offsets[column] = c;
        tile.sizes[column] = std::min(max_columns, last_column - c);
        visit(tile);
      }
    }
    // The next combination of indices in front of rows and columns.
    size_t dim = row;
    while (dim > 0 && ++tile.offsets[dim - 1] == end_of(dim - 1)) {
      tile.offsets[dim - 1] = bounds.offsets[dim - 1];
      --dim;
    }
    if (dim == 0) return;
  }
}

absl::Status BlockEncoder::Run(const EncodedWindow& work, ReadTable read) {
  absl::Status status;
  ForEachTile(work, [&](const Box& tile) {
    if (!status.ok()) return;
    status = Get(*work.tensor, tile, read);
    if (!status.ok()) return;
    if (work.tensor->kind() == LensedTensor::Kind::kEncodedCodes) {
      WriteCodes(work);
    } else {
      WriteScales(work);
    }
  });
  return status;
}

absl::Status BlockEncoder::Get(const LensedTensor& tensor, const Box& tile,
                               ReadTable read) {
  if (tile_tensor_ == &tensor && tile_ == tile) return absl::OkStatus();
  tile_tensor_ = nullptr;
  const DType dtype = tensor.values().dtype;
  values_.resize(static_cast<uint64_t>(Volume(tile.sizes)) *
                 ElementSize(dtype));
  DCP_RETURN_IF_ERROR(read(tensor.tables()[0], tile, dtype, values_.data()));
  tile_ = tile;
  DCP_RETURN_IF_ERROR(FindFactors(tensor));
  tile_tensor_ = &tensor;
  return absl::OkStatus();
}

absl::Status BlockEncoder::FindFactors(const LensedTensor& tensor) {
  const DType dtype = tensor.values().dtype;
  const int64_t num_columns = tile_.sizes.back();
  const int64_t num_rows = tile_.sizes[tile_.sizes.size() - 2];
  factors_.assign(static_cast<size_t>((num_columns + kBlock - 1) / kBlock), 0);
  std::array<float, kBlock> floats;
  const uint8_t* src = values_.data();
  for (int64_t r = 0; r < num_rows; ++r) {
    for (int64_t c = 0; c < num_columns; c += kBlock) {
      const int64_t num = std::min(kBlock, num_columns - c);
      ToFloats(dtype, src, floats.data(), num);
      src += static_cast<uint64_t>(num) * ElementSize(dtype);
      float& greatest = factors_[static_cast<size_t>(c / kBlock)];
      // The sum is not finite if any element is not.
      float sum = 0;
      for (int64_t i = 0; i < num; ++i) {
        const float magnitude = std::fabs(floats[static_cast<size_t>(i)]);
        sum += magnitude * 0;
        greatest = std::max(greatest, magnitude);
      }
      if (std::isfinite(sum)) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          tensor.tables()[0].name, " has an element that is not finite in row ",
          tile_.offsets[tile_.sizes.size() - 2] + r, ", columns ",
          tile_.offsets.back() + c, " to ", tile_.offsets.back() + c + num - 1,
          "; float8 with scales cannot hold it"));
    }
  }
  for (float& factor : factors_) factor = BlockFactor(factor);
  return absl::OkStatus();
}

void BlockEncoder::WriteCodes(const EncodedWindow& work) const {
  const Window& window = work.window;
  const DType dtype = work.tensor->values().dtype;
  const size_t row = tile_.sizes.size() - 2;
  const size_t column = row + 1;
  const int64_t begin =
      std::max(tile_.offsets[column], window.box.offsets[column]);
  const int64_t end =
      std::min(tile_.offsets[column] + tile_.sizes[column],
               window.box.offsets[column] + window.box.sizes[column]);
  Dims index = tile_.offsets;
  std::array<float, kBlock> floats;
  for (int64_t r = 0; r < tile_.sizes[row]; ++r) {
    index[row] = tile_.offsets[row] + r;
    const int64_t in_box = index[row] - window.box.offsets[row];
    if (in_box < 0 || in_box >= window.box.sizes[row]) continue;
    index[column] = begin;
    // Takes the row's part that is in the window.
    const int64_t number =
        NumberIn(window.box, index) - static_cast<int64_t>(window.first);
    const int64_t last = std::min(
        end - begin, static_cast<int64_t>(window.num_elements) - number);
    for (int64_t i = std::max<int64_t>(0, -number); i < last;) {
      const int64_t c = begin + i - tile_.offsets[column];
      const int64_t num = std::min(kBlock - c % kBlock, last - i);
      ToFloats(
          dtype,
          values_.data() + static_cast<uint64_t>(r * tile_.sizes[column] + c) *
                               ElementSize(dtype),
          floats.data(), num);
      const float factor = factors_[static_cast<size_t>(c / kBlock)];
      for (float& value : floats) {
        value = std::clamp(value * factor, -kMaxFloat8, kMaxFloat8);
      }
      TransformElements({.from = DType::kFloat32, .to = DType::kFloat8E4M3FN},
                        reinterpret_cast<const uint8_t*>(floats.data()),
                        work.dst + (number + i), static_cast<uint64_t>(num));
      i += num;
    }
  }
}

void BlockEncoder::WriteScales(const EncodedWindow& work) const {
  const Window& window = work.window;
  Dims index = tile_.offsets;
  const Dims& block = work.tensor->block();
  for (size_t i = 0; i < index.size(); ++i) index[i] /= block[i];
  for (const float factor : factors_) {
    const int64_t number =
        NumberIn(window.box, index) - static_cast<int64_t>(window.first);
    ++index.back();
    if (number < 0 || number >= static_cast<int64_t>(window.num_elements)) {
      continue;
    }
    const float scale = 1 / factor;
    std::memcpy(work.dst + static_cast<uint64_t>(number) * sizeof(scale),
                &scale, sizeof(scale));
  }
}

}  // namespace dcp
