// SPDX-License-Identifier: Apache-2.0
// CastLosses: in which tensors a conversion changed more than the precision.
// Pure.
#ifndef DCP_CHECKPOINT_CONVERT_CAST_LOSSES_H_
#define DCP_CHECKPOINT_CONVERT_CAST_LOSSES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/convert/conversion.h"
#include "dcp/checkpoint/convert/convert_plan.h"

namespace dcp {

// The tensors for which conversion.num_beyond counts elements, by name.
std::vector<CastLoss> CastLosses(const Conversion& conversion);

// The error of a strict cast with these losses, of which there are some.
absl::Status StrictCastError(absl::Span<const CastLoss> losses);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_CAST_LOSSES_H_
