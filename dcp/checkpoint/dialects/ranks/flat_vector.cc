// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/ranks/flat_vector.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"

namespace dcp {

void CutEvenly(int64_t numel, int64_t num_ranks, FlatVector& vector) {
  const int64_t size = numel / num_ranks + (numel % num_ranks != 0 ? 1 : 0);
  vector.numel = numel;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    // Ranks behind the end have padding only.
    const bool is_behind = size == 0 || rank > numel / size;
    vector.begins.push_back(is_behind ? numel : size * rank);
    vector.sizes.push_back(size);
  }
}

absl::Status AddFlatPiece(const FlatVector& vector, int64_t rank,
                          const TensorEntry& piece, FlatPathFunction path_of,
                          StateCollector& collector) {
  const size_t r = static_cast<size_t>(rank);
  const int64_t begin = vector.begins[r];
  const int64_t real = std::min(vector.sizes[r], vector.numel - begin);
  if (piece.shape.size() != 1 ||
      (piece.shape[0] != vector.sizes[r] && piece.shape[0] != real)) {
    return absl::DataLossError(
        absl::StrCat("expected a vector of ", vector.sizes[r], " elements, a ",
                     vector.begins.size(), "th of ", vector.name,
                     ", which has ", vector.numel, "; rank ", rank,
                     " has shape ", ShapeToString(piece.shape)));
  }
  for (const FlatParameter& parameter : vector.parameters) {
    const int64_t first = std::max(begin, parameter.begin);
    const int64_t end =
        std::min(begin + real, parameter.begin + parameter.numel);
    const int64_t count = std::max<int64_t>(0, end - first);
    // Rank 0 gives the dtype and shape for parameters without elements, too.
    if (count == 0 && rank != 0) continue;
    DCP_RETURN_IF_ERROR(collector.AddPart(
        path_of(parameter.name), rank,
        FlatPart(piece, count == 0 ? 0 : first - begin, count, parameter.shape,
                 count == 0 ? 0 : first - parameter.begin)));
  }
  return absl::OkStatus();
}

}  // namespace dcp
