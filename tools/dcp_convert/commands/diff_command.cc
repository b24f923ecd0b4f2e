// SPDX-License-Identifier: Apache-2.0
// The verb diff: compares two checkpoints and prints the findings.
// Tested by tests/tools/dcp_convert/dcp_convert_test.sh.
#include "dcp/base/status.h"
#include "tools/dcp_convert/commands/commands.h"
#include "tools/dcp_convert/commands/comparison.h"
#include "tools/dcp_convert/output/json_output.h"
#include "tools/dcp_convert/output/render.h"

namespace dcp::tools {

absl::StatusOr<ExitCode> RunDiff(const Context& context) {
  const CommandLine& line = context.line;
  DCP_ASSIGN_OR_RETURN(const Comparison comparison, ComparePaths(context));
  context.console.err << RenderWarnings("", comparison.report.warnings);
  context.console.out << (line.json ? DiffJson(line.paths[0], line.paths[1],
                                               comparison, line.diff.tolerance)
                                    : RenderComparison(comparison,
                                                       line.diff.tolerance));
  return comparison.report.findings.empty() ? kExitDone : kExitFound;
}

}  // namespace dcp::tools
