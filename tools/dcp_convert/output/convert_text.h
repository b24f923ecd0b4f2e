// SPDX-License-Identifier: Apache-2.0
// A conversion, done or planned, as text for people. Pure; any thread.
#ifndef TOOLS_DCP_CONVERT_OUTPUT_CONVERT_TEXT_H_
#define TOOLS_DCP_CONVERT_OUTPUT_CONVERT_TEXT_H_

#include <string>

#include "dcp/checkpoint/convert/convert_plan.h"

namespace dcp::tools {

// The present or future contents of the destination, and the values left out.
std::string RenderContents(const ConvertPlan& plan);

// Which part of the source was written without a check, and which casts lost
// more than precision; empty if there is nothing of that.
std::string RenderDoubts(const ConvertPlan& plan);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OUTPUT_CONVERT_TEXT_H_
