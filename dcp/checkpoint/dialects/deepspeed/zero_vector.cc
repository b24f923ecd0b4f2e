// SPDX-License-Identifier: Apache-2.0
// Joins tensors into one vector, and cuts ranges from it.
// Tested by tests/dcp/checkpoint/open/dialects/dialects_test.cc.
#include "dcp/checkpoint/dialects/deepspeed/zero_vector.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

absl::Status ZeroVector::Append(TensorEntry tensor) {
  if (tensor.shape.size() != 1) {
    return absl::DataLossError(
        absl::StrCat("expected a tensor of one dimension, found shape ",
                     ShapeToString(tensor.shape)));
  }
  if (!tensors_.empty() && tensor.dtype != tensors_[0].dtype) {
    return absl::DataLossError(absl::StrCat(
        "expected ", TorchName(tensors_[0].dtype),
        " as in the groups before, found ", TorchName(tensor.dtype)));
  }
  begins_.push_back(size_);
  size_ += tensor.shape[0];
  tensors_.push_back(std::move(tensor));
  return absl::OkStatus();
}

absl::Status ZeroVector::AddTo(StateCollector& collector, const StatePath& path,
                               int64_t rank, Range range,
                               const Dims& shape) const {
  auto& [begin, count, parameter_begin] = range;
  if (begin < 0 || count < 0 || begin > size_ || count > size_ - begin) {
    return absl::DataLossError(
        absl::StrCat("elements ", begin, " to ", begin + count,
                     " are needed, but rank ", rank, " has ", size_));
  }
  StateCollector::Part part;
  part.dtype = tensors_.empty() ? DType::kFloat32 : tensors_[0].dtype;
  part.shape = shape;
  // The last tensor that begins at or before the range.
  size_t i = static_cast<size_t>(
      std::upper_bound(begins_.begin(), begins_.end(), begin) -
      begins_.begin());
  if (i > 0) --i;
  while (count > 0) {
    const int64_t inside = begin - begins_[i];
    const int64_t size = std::min(count, tensors_[i].shape[0] - inside);
    StateCollector::Part piece =
        FlatPart(tensors_[i], inside, size, shape, parameter_begin);
    std::move(piece.boxes.begin(), piece.boxes.end(),
              std::back_inserter(part.boxes));
    std::move(piece.locations.begin(), piece.locations.end(),
              std::back_inserter(part.locations));
    begin += size;
    parameter_begin += size;
    count -= size;
    ++i;
  }
  return collector.AddPart(path, rank, std::move(part));
}

}  // namespace dcp
