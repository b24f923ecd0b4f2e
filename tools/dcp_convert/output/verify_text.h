// SPDX-License-Identifier: Apache-2.0
// A verify's report, for people. Pure; any thread.
#ifndef TOOLS_DCP_CONVERT_OUTPUT_VERIFY_TEXT_H_
#define TOOLS_DCP_CONVERT_OUTPUT_VERIFY_TEXT_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "dcp/checkpoint/verify/verify_report.h"
#include "tools/terminal/exit_code.h"

namespace dcp::tools {

// A table with the findings, and an empty line after it; empty without any.
std::string RenderFindings(const VerifyReport& report);

// "no problem found", "2 problems found", or that nothing could be checked.
std::string RenderVerdict(const VerifyReport& report);

// The findings, the checked parts, the time if known, and the verdict. The
// report is about `path`.
std::string RenderReport(absl::string_view path, const VerifyReport& report,
                         std::optional<double> seconds);

// A report's exit code. `strict`: unchecked items count as findings.
ExitCode CodeOfReport(const VerifyReport& report, bool strict);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OUTPUT_VERIFY_TEXT_H_
