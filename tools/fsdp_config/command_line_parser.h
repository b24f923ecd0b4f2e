// SPDX-License-Identifier: Apache-2.0
// Parses fsdp-config's command line, and checks it as far as possible without
// reading a file; makes the help. The verbs and options are tables in
// option_table.h. Pure; any thread.
#ifndef TOOLS_FSDP_CONFIG_COMMAND_LINE_PARSER_H_
#define TOOLS_FSDP_CONFIG_COMMAND_LINE_PARSER_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tools/fsdp_config/command_line.h"

namespace fsdp::tools {

// `args` do not include the program's name. InvalidArgument is one line that
// names the mistake and the help to read.
absl::StatusOr<CommandLine> ParseCommandLine(
    absl::Span<const std::string> args);

std::string GeneralHelp();
std::string VerbHelp(Verb verb);

}  // namespace fsdp::tools

#endif  // TOOLS_FSDP_CONFIG_COMMAND_LINE_PARSER_H_
