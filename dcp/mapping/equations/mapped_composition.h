// SPDX-License-Identifier: Apache-2.0
// ComposeMapped: one mapping after another, as one. For mapping.cc and
// round_trip.cc; pure; any thread.
#ifndef DCP_MAPPING_EQUATIONS_MAPPED_COMPOSITION_H_
#define DCP_MAPPING_EQUATIONS_MAPPED_COMPOSITION_H_

#include "absl/status/statusor.h"
#include "dcp/mapping/equations/mapped_tensors.h"

namespace dcp {

// `first` makes the tensors, in their order, that `second` takes. The result
// makes those of the second from the sources of the first. What the second
// says is equal or a padding is said of the sources; the reports of both are
// there, those of the first in front.
//
// ResourceExhausted beyond kMaxMappedPieces pieces or kMaxComposedSteps;
// FailedPrecondition if something that must be equal comes from a source on one
// side and is zero on the other.
absl::StatusOr<MappedTensors> ComposeMapped(MappedTensors first,
                                            MappedTensors second);

}  // namespace dcp

#endif  // DCP_MAPPING_EQUATIONS_MAPPED_COMPOSITION_H_
