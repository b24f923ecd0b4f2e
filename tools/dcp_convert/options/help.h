// SPDX-License-Identifier: Apache-2.0
// The texts that --help and --version print, made from the tables. Pure; any
// thread.
#ifndef TOOLS_DCP_CONVERT_OPTIONS_HELP_H_
#define TOOLS_DCP_CONVERT_OPTIONS_HELP_H_

#include <string>

#include "absl/strings/string_view.h"
#include "tools/dcp_convert/options/command_line.h"

namespace dcp::tools {

std::string GeneralHelp();
std::string VerbHelp(Verb verb);
std::string VersionText();
// One indented line for each exit code.
absl::string_view ExitCodeHelp();

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OPTIONS_HELP_H_
