// SPDX-License-Identifier: Apache-2.0
// CheckRoundTrip: whether a mapping loses no data, from names, shapes and
// pieces alone. Pure; any thread.
#ifndef DCP_MAPPING_TRIAL_ROUND_TRIP_H_
#define DCP_MAPPING_TRIAL_ROUND_TRIP_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/mapping/application/mapping.h"
#include "dcp/mapping/equations/mapped_tensors.h"

namespace dcp {

struct RoundTrip {
  size_t num_made = 0;  // tensors on the other side
  size_t num_pieces = 0;
  // Sources that the rules leave out, by name: dropped by the side, or equal to
  // another tensor.
  std::vector<std::string> left_out;
};

// Maps `sources` as `options` say, and maps the result back. The same tensors
// must result, with each element from its original place, or from an element
// that a rule declares equal.
//
// Errors are those of Mapping::Map, and DataLoss, which names the tensor, if it
// is lost, has another type or shape, or takes elements from elsewhere.
absl::StatusOr<RoundTrip> CheckRoundTrip(
    const Mapping& mapping, absl::Span<const MappingTensor> sources,
    const MapOptions& options);

}  // namespace dcp

#endif  // DCP_MAPPING_TRIAL_ROUND_TRIP_H_
