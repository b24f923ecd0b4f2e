// SPDX-License-Identifier: Apache-2.0
// CheckRoundTrip: whether a mapping loses nothing, by names, shapes and pieces
// alone. Pure; any thread.
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
  // Sources that the rules leave out, by name: what their side drops, and what
  // equals another tensor.
  std::vector<std::string> left_out;
};

// Maps `sources` as `options` say and what is made of them back again. The same
// tensors must result, each element from its own place, or from where a rule
// says that an equal one is.
//
// Errors are those of Mapping::Map, and DataLoss, which names the tensor, if it
// is lost, has another type or shape, or takes elements from elsewhere.
absl::StatusOr<RoundTrip> CheckRoundTrip(
    const Mapping& mapping, absl::Span<const MappingTensor> sources,
    const MapOptions& options);

}  // namespace dcp

#endif  // DCP_MAPPING_TRIAL_ROUND_TRIP_H_
