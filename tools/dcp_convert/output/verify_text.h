// SPDX-License-Identifier: Apache-2.0
// The report of a verify, for people. Pure; any thread.
#ifndef TOOLS_DCP_CONVERT_OUTPUT_VERIFY_TEXT_H_
#define TOOLS_DCP_CONVERT_OUTPUT_VERIFY_TEXT_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "dcp/checkpoint/verify/verify_report.h"
#include "tools/terminal/exit_code.h"

namespace dcp::tools {

// A table of the findings, with an empty line behind it; empty without any.
std::string RenderFindings(const VerifyReport& report);

// "no problem found", "2 problems found", or that nothing could be checked.
std::string RenderVerdict(const VerifyReport& report);

// The findings, what was checked and, if known, how long it took, and the
// verdict. `path` is what the report is about.
std::string RenderReport(absl::string_view path, const VerifyReport& report,
                         std::optional<double> seconds);

// The exit code of a report. `strict`: unchecked items count as findings.
ExitCode CodeOfReport(const VerifyReport& report, bool strict);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OUTPUT_VERIFY_TEXT_H_
