// SPDX-License-Identifier: Apache-2.0
// What pieces mean, one element after the other: the judge of every test of
// mappings. For tests only; one thread.
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

// The destinations of `mapped`, in order. An error if an element of a
// destination is written twice or never, if a piece leaves its tensors, or if a
// tie does not hold.
absl::StatusOr<std::vector<ArrayTensor>> ApplyPieces(
    const MappedTensors& mapped, absl::Span<const ArrayTensor> sources);

// Whether all paddings are zero.
bool PaddingsAreZero(const MappedTensors& mapped,
                     absl::Span<const ArrayTensor> sources);

}  // namespace dcp::testing

#endif  // TESTS_DCP_MAPPING_APPLY_PIECES_H_
