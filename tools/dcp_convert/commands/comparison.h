// SPDX-License-Identifier: Apache-2.0
// Compares two checkpoints by value: A and B for `diff`; for --check, a
// conversion's result and source. Blocking; one thread.
#ifndef TOOLS_DCP_CONVERT_COMMANDS_COMPARISON_H_
#define TOOLS_DCP_CONVERT_COMMANDS_COMPARISON_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "dcp/tensor/element.h"
#include "tools/dcp_convert/commands/commands.h"
#include "tools/dcp_convert/output/json_output.h"

namespace dcp::tools {

// Compares the line's two paths, or lets the daemon do it, and shows the
// progress. The errors are DiffCheckpoints'.
absl::StatusOr<Comparison> ComparePaths(const Context& context);

// The findings, for people.
std::string RenderComparison(const Comparison& comparison,
                             const std::optional<Tolerance>& tolerance);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_COMMANDS_COMPARISON_H_
