// SPDX-License-Identifier: Apache-2.0
// TryMapping: converts random tensors there and back in memory, and compares
// the bits. It shows mistakes in a new rule file at once; pure; any thread.
#ifndef DCP_MAPPING_TRIAL_MAPPING_TRIAL_H_
#define DCP_MAPPING_TRIAL_MAPPING_TRIAL_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/mapping/application/mapping.h"
#include "dcp/mapping/equations/mapped_tensors.h"

namespace dcp {

struct MappingTrial {
  size_t num_made = 0;     // tensors on the other side
  uint64_t num_bytes = 0;  // in the sources
};

// Fills `sources` with random bytes, except that ties are made equal and
// paddings zero. Maps them as `options` say, and maps the result back. DataLoss
// names the tensor and the element that came back different, or the elements
// that should be equal on the other side and are not; other errors are those of
// Mapping::Map. ResourceExhausted for more than kMaxInventedElements elements.
absl::StatusOr<MappingTrial> TryMapping(const Mapping& mapping,
                                        absl::Span<const MappingTensor> sources,
                                        const MapOptions& options,
                                        uint32_t seed);

}  // namespace dcp

#endif  // DCP_MAPPING_TRIAL_MAPPING_TRIAL_H_
