// SPDX-License-Identifier: Apache-2.0
// A mapping's effect in a conversion, for people. Pure; any thread.
#ifndef TOOLS_DCP_CONVERT_OUTPUT_MAP_PLAN_TEXT_H_
#define TOOLS_DCP_CONVERT_OUTPUT_MAP_PLAN_TEXT_H_

#include <string>

#include "absl/types/span.h"
#include "dcp/checkpoint/convert/convert_plan.h"

namespace dcp::tools {

// A table with the rules, the numbers that they took from config.json, and the
// tensors that are left out or written twice.
std::string RenderMapPlan(const PlannedMap& map);

// "a, b, c and 7 more".
std::string FirstNames(absl::Span<const std::string> names);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OUTPUT_MAP_PLAN_TEXT_H_
