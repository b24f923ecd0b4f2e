// SPDX-License-Identifier: Apache-2.0
// SpecText: the fields of a ConvertSpec that decide which bytes a conversion
// writes, as text for a fingerprint. Pure; any thread.
#ifndef DCP_CHECKPOINT_CONVERT_SPEC_TEXT_H_
#define DCP_CHECKPOINT_CONVERT_SPEC_TEXT_H_

#include <string>

#include "dcp/checkpoint/convert/convert_options.h"

namespace dcp {

// Two specs with the same text write the same bytes from the same source to the
// same layouts (see PlanText, which has the layouts too).
std::string SpecText(const ConvertSpec& spec);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_SPEC_TEXT_H_
