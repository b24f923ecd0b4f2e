// SPDX-License-Identifier: Apache-2.0
// Parses dcp-convert's command line, and checks everything that can be checked
// without looking at a file. Verbs and options are tables in option_table.h.
#ifndef TOOLS_DCP_CONVERT_OPTIONS_COMMAND_LINE_PARSER_H_
#define TOOLS_DCP_CONVERT_OPTIONS_COMMAND_LINE_PARSER_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tools/dcp_convert/options/command_line.h"

namespace dcp::tools {

// `args` do not include the program's name. InvalidArgument is one line with
// the problem, the value, the allowed values, and the help to read. `server`,
// an address or empty, is used if --server is absent. Any thread.
absl::StatusOr<CommandLine> ParseCommandLine(absl::Span<const std::string> args,
                                             absl::string_view server = "");

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OPTIONS_COMMAND_LINE_PARSER_H_
