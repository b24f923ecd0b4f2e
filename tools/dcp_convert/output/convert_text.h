// SPDX-License-Identifier: Apache-2.0
// A conversion, done or planned, as text for people. Pure; any thread.
#ifndef TOOLS_DCP_CONVERT_OUTPUT_CONVERT_TEXT_H_
#define TOOLS_DCP_CONVERT_OUTPUT_CONVERT_TEXT_H_

#include <string>

#include "dcp/checkpoint/convert/convert_plan.h"

namespace dcp::tools {

// The destination's present or future contents, and the values left out.
std::string RenderContents(const ConvertPlan& plan);

// The source's parts that were written without a check, and the casts that lost
// more than precision; empty if there are none.
std::string RenderDoubts(const ConvertPlan& plan);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OUTPUT_CONVERT_TEXT_H_
