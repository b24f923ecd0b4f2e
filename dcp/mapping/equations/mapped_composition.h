// SPDX-License-Identifier: Apache-2.0
// ComposeMapped: one mapping after another, as one. For mapping.cc and
// round_trip.cc; pure; any thread.
#ifndef DCP_MAPPING_EQUATIONS_MAPPED_COMPOSITION_H_
#define DCP_MAPPING_EQUATIONS_MAPPED_COMPOSITION_H_

#include "absl/status/statusor.h"
#include "dcp/mapping/equations/mapped_tensors.h"

namespace dcp {

// Composes two conversions: `first` makes the tensors, in their order, that
// `second` takes. The result makes the second's tensors from the first's
// sources. Ties and paddings of the second are translated to these sources. The
// result has both reports, the first's in front.
//
// ResourceExhausted beyond kMaxMappedPieces pieces or kMaxComposedSteps;
// FailedPrecondition if two elements must be equal, and only one comes from a
// source while the other is zero.
absl::StatusOr<MappedTensors> ComposeMapped(MappedTensors first,
                                            MappedTensors second);

}  // namespace dcp

#endif  // DCP_MAPPING_EQUATIONS_MAPPED_COMPOSITION_H_
