// SPDX-License-Identifier: Apache-2.0
// Compares two checkpoints by value: for `diff`, and for --check, after a
// conversion, its result with its source. Blocking; one thread.
#ifndef TOOLS_DCP_CONVERT_COMMANDS_COMPARISON_H_
#define TOOLS_DCP_CONVERT_COMMANDS_COMPARISON_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "dcp/tensor/element.h"
#include "tools/dcp_convert/commands/commands.h"
#include "tools/dcp_convert/output/json_output.h"

namespace dcp::tools {

// Compares the two paths of the line, or lets the daemon do it, and shows the
// progress. Errors are those of DiffCheckpoints.
absl::StatusOr<Comparison> ComparePaths(const Context& context);

// What was found, for people.
std::string RenderComparison(const Comparison& comparison,
                             const std::optional<Tolerance>& tolerance);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_COMMANDS_COMPARISON_H_
