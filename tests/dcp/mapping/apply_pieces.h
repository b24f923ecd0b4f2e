// SPDX-License-Identifier: Apache-2.0
// The meaning of pieces, one element after the other: every mapping test is
// judged by this. For tests only; one thread.
#ifndef TESTS_DCP_MAPPING_APPLY_PIECES_H_
#define TESTS_DCP_MAPPING_APPLY_PIECES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/mapping/equations/mapped_tensors.h"

namespace dcp::testing {

// A whole tensor, row-major and little-endian.
struct ArrayTensor {
  MappingTensor tensor;
  std::string bytes;
};

std::vector<MappingTensor> WithoutBytes(absl::Span<const ArrayTensor> arrays);

// The destinations in `mapped`, in order. An error if a destination element is
// written twice or never, if a piece leaves the tensors, or if a tie does not
// hold.
absl::StatusOr<std::vector<ArrayTensor>> ApplyPieces(
    const MappedTensors& mapped, absl::Span<const ArrayTensor> sources);

// Whether all paddings are zero.
bool PaddingsAreZero(const MappedTensors& mapped,
                     absl::Span<const ArrayTensor> sources);

}  // namespace dcp::testing

#endif  // TESTS_DCP_MAPPING_APPLY_PIECES_H_
