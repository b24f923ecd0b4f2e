// SPDX-License-Identifier: Apache-2.0
// A misfit: the source is sound, but a mapping's rules are not made for it. A
// Status carries this in addition to the code, so that a program can tell it
// from damage. Any thread.
#ifndef DCP_BASE_ERROR_MISFIT_H_
#define DCP_BASE_ERROR_MISFIT_H_

#include "absl/status/status.h"

namespace dcp {

// `status` marked as a misfit, unless it is OK.
absl::Status WithMisfit(absl::Status status);

bool IsMisfit(const absl::Status& status);

}  // namespace dcp

#endif  // DCP_BASE_ERROR_MISFIT_H_
