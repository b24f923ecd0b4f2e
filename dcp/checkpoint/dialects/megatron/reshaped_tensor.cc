// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/megatron/reshaped_tensor.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "dcp/base/bytes.h"
#include "dcp/base/status.h"
#include "dcp/tensor/flat_boxes.h"

namespace dcp {
namespace {

// One block's shape.
absl::StatusOr<Dims> BlockShape(const TensorEntry& stored, const Dims& shape) {
  const std::string found =
      absl::StrCat("a tensor of shape ", ShapeToString(shape), " is stored as ",
                   ShapeToString(stored.shape));
  if (stored.shape.size() != shape.size() + 1) {
    return absl::DataLossError(
        absl::StrCat(found, ", which should have one dimension more"));
  }
  const std::optional<int64_t> volume = CheckedVolume(shape);
  if (!volume.has_value() ||
      !CheckedMul(static_cast<uint64_t>(*volume), ElementSize(stored.dtype))
           .has_value()) {
    return absl::DataLossError(absl::StrCat(found, ", which exceeds 64 bits"));
  }
  Dims block;
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t count = stored.shape[d];
    if (count == 0 || shape[d] % count != 0) {
      return absl::DataLossError(absl::StrCat(found, ": ", count,
                                              " equal blocks do not make up ",
                                              shape[d], " in dimension ", d));
    }
    block.push_back(shape[d] / count);
  }
  if (Volume(block) != stored.shape.back()) {
    return absl::DataLossError(
        absl::StrCat(found, ": a block of shape ", ShapeToString(block),
                     " does not have ", stored.shape.back(), " elements"));
  }
  return block;
}

// `dims` without the first one.
Dims WithoutFirstDim(const Dims& dims) {
  return Dims(dims.begin() + 1, dims.end());
}

// Layer `k` of the `num_layers` that are in one part.
ItemPart LayerPart(ItemPart part, int64_t k, int64_t num_layers) {
  const int64_t size = Volume(part.box.sizes) / num_layers;
  part.box.offsets.back() += k * size;
  part.box.sizes.back() = size;
  return part;
}

}  // namespace

absl::Status CutBudget::Take(uint64_t num_pieces, size_t numbers_each) {
  // A piece without dimensions takes memory too.
  const uint64_t numbers = std::max<uint64_t>(numbers_each, 4);
  if (num_pieces > left_ / numbers) {
    return absl::ResourceExhaustedError(absl::StrCat(
        num_pieces, " more pieces of ", numbers,
        " numbers each: all tensors together would be cut into more than ",
        kMaxCutNumbers, " numbers"));
  }
  left_ -= num_pieces * numbers;
  return absl::OkStatus();
}

absl::StatusOr<TensorEntry> FromBlocks(const TensorEntry& stored,
                                       const Dims& shape, CutBudget& budget) {
  DCP_ASSIGN_OR_RETURN(const Dims block, BlockShape(stored, shape));
  TensorEntry tensor;
  tensor.dtype = stored.dtype;
  tensor.shape = shape;
  for (size_t c = 0; c < stored.boxes.size(); ++c) {
    const Box& chunk = stored.boxes[c];
    const int64_t volume = Volume(chunk.sizes);
    if (volume == 0) continue;
    if (volume != chunk.sizes.back()) {
      return absl::DataLossError(absl::StrCat(
          "the chunk ", ToString(chunk), " of ", ShapeToString(stored.shape),
          " is not in one block of ", ShapeToString(block)));
    }
    const int64_t begin = chunk.offsets.back();
    std::vector<FlatBox> pieces = FlatBoxes(block, begin, begin + volume);
    DCP_RETURN_IF_ERROR(budget.Take(pieces.size(), stored.shape.size()));
    for (FlatBox& piece : pieces) {
      ItemPart& part = tensor.parts.emplace_back();
      part.shape = chunk.sizes;
      part.box = WholeBox(chunk.sizes);
      part.box.offsets.back() = piece.offset;
      part.box.sizes.back() = Volume(piece.box.sizes);
      for (size_t d = 0; d < block.size(); ++d) {
        piece.box.offsets[d] += chunk.offsets[d] * block[d];
      }
      tensor.boxes.push_back(std::move(piece.box));
      tensor.locations.push_back(stored.locations[c]);
    }
  }
  return tensor;
}

absl::StatusOr<std::vector<TensorEntry>> Unstack(const TensorEntry& stacked,
                                                 CutBudget& budget) {
  if (stacked.shape.empty() || stacked.shape[0] > kMaxStackedLayers) {
    return absl::DataLossError(absl::StrCat(
        "the shape ", ShapeToString(stacked.shape),
        " is not a stack of at most ", kMaxStackedLayers, " layers"));
  }
  const auto num_layers = static_cast<size_t>(stacked.shape[0]);
  DCP_RETURN_IF_ERROR(budget.Take(num_layers, stacked.shape.size()));
  std::vector<TensorEntry> layers(num_layers);
  for (TensorEntry& layer : layers) {
    layer.dtype = stacked.dtype;
    layer.shape = WithoutFirstDim(stacked.shape);
  }
  for (size_t c = 0; c < stacked.boxes.size(); ++c) {
    const Box& chunk = stacked.boxes[c];
    if (Volume(chunk.sizes) == 0) continue;
    const int64_t count = chunk.sizes[0];
    DCP_RETURN_IF_ERROR(
        budget.Take(static_cast<uint64_t>(count), stacked.shape.size()));
    for (int64_t k = 0; k < count; ++k) {
      TensorEntry& layer = layers[static_cast<size_t>(chunk.offsets[0] + k)];
      layer.boxes.push_back(
          {WithoutFirstDim(chunk.offsets), WithoutFirstDim(chunk.sizes)});
      layer.locations.push_back(stacked.locations[c]);
      if (!stacked.parts.empty()) {
        layer.parts.push_back(LayerPart(stacked.parts[c], k, count));
        continue;
      }
      ItemPart& part = layer.parts.emplace_back();
      part.shape = chunk.sizes;
      part.box = WholeBox(chunk.sizes);
      part.box.offsets[0] = k;
      part.box.sizes[0] = 1;
    }
  }
  return layers;
}

}  // namespace dcp
