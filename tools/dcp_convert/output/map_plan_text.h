// SPDX-License-Identifier: Apache-2.0
// What a mapping does in a conversion, for people. Pure; any thread.
#ifndef TOOLS_DCP_CONVERT_OUTPUT_MAP_PLAN_TEXT_H_
#define TOOLS_DCP_CONVERT_OUTPUT_MAP_PLAN_TEXT_H_

#include <string>

#include "absl/types/span.h"
#include "dcp/checkpoint/convert/convert_plan.h"

namespace dcp::tools {

// A table of the rules, what they took from config.json, and which tensors are
// left out or written twice.
std::string RenderMapPlan(const PlannedMap& map);

// "a, b, c and 7 more".
std::string FirstNames(absl::Span<const std::string> names);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OUTPUT_MAP_PLAN_TEXT_H_
