// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/mapped/mapped_tensor.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

absl::Status CheckPiece(const StridedPiece& piece, DType dtype,
                        const Dims& shape,
                        absl::Span<const TensorEntry* const> sources) {
  if (piece.src == StridedPiece::kZeros) {
    return CheckStridedPiece(piece, {}, shape);
  }
  if (piece.src >= sources.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a piece takes source ", piece.src, " of ", sources.size()));
  }
  const TensorEntry& source = *sources[piece.src];
  if (source.mapped != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("source ", piece.src, " is a mapped tensor itself"));
  }
  if (source.dtype != dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat("source ", piece.src, " is ", TorchName(source.dtype),
                     " where ", TorchName(dtype), " is made"));
  }
  return CheckStridedPiece(piece, source.shape, shape);
}

}  // namespace

absl::StatusOr<std::unique_ptr<const MappedTensor>> MappedTensor::Make(
    DType dtype, const Dims& shape, std::vector<StridedPiece> pieces,
    absl::Span<const TensorEntry* const> sources) {
  uint64_t num_elements = 0;
  for (const StridedPiece& piece : pieces) {
    DCP_RETURN_IF_ERROR(CheckPiece(piece, dtype, shape, sources));
    // Each is at most the tensor's volume, so a sum that does not fit into 64
    // bits has long exceeded it.
    num_elements =
        CheckedAdd(num_elements, NumElements(piece)).value_or(UINT64_MAX);
  }
  if (num_elements != static_cast<uint64_t>(Volume(shape))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the pieces of a tensor of shape ", ShapeToString(shape), " make ",
        num_elements, " elements instead of ", Volume(shape)));
  }
  const auto is_empty = [](const StridedPiece& piece) {
    return NumElements(piece) == 0;
  };
  pieces.erase(std::remove_if(pieces.begin(), pieces.end(), is_empty),
               pieces.end());
  std::vector<Box> bounds;
  bounds.reserve(pieces.size());
  std::vector<const TensorEntry*> used;
  absl::flat_hash_map<const TensorEntry*, uint32_t> numbers;
  for (StridedPiece& piece : pieces) {
    bounds.push_back(FindBounds(piece, PieceSide::kDst));
    if (piece.src == StridedPiece::kZeros) continue;
    const TensorEntry* const source = sources[piece.src];
    const auto [it, is_new] =
        numbers.emplace(source, static_cast<uint32_t>(used.size()));
    if (is_new) used.push_back(source);
    piece.src = it->second;
  }
  return absl::WrapUnique(new MappedTensor(dtype, shape, std::move(pieces),
                                           std::move(bounds), std::move(used)));
}

MappedTensor::MappedTensor(DType dtype, const Dims& shape,
                           std::vector<StridedPiece> pieces,
                           std::vector<Box> bounds,
                           std::vector<const TensorEntry*> sources)
    : pieces_(std::move(pieces)),
      bounds_(std::move(bounds)),
      sources_(std::move(sources)),
      index_(bounds_) {
  entry_.dtype = dtype;
  entry_.shape = shape;
  entry_.mapped = this;
  for (const TensorEntry* const source : sources_) {
    if (source->quantization != nullptr) {
      entry_.quantization = source->quantization;
    }
  }
}

}  // namespace dcp
