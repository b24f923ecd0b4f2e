// SPDX-License-Identifier: Apache-2.0
// Parses the command line of fsdp-config, and checks it as far as possible
// without reading a file; its help. The verbs and options are tables in
// option_table.h. Pure; any thread.
#ifndef TOOLS_FSDP_CONFIG_COMMAND_LINE_PARSER_H_
#define TOOLS_FSDP_CONFIG_COMMAND_LINE_PARSER_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tools/fsdp_config/command_line.h"

namespace fsdp::tools {

// `args` do not include the program's name. InvalidArgument is one line that
// says what is wrong and which help to read.
absl::StatusOr<CommandLine> ParseCommandLine(
    absl::Span<const std::string> args);

std::string GeneralHelp();
std::string VerbHelp(Verb verb);

}  // namespace fsdp::tools

#endif  // TOOLS_FSDP_CONFIG_COMMAND_LINE_PARSER_H_
