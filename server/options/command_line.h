// SPDX-License-Identifier: Apache-2.0
// A server's command line: options as flags, and in a file with "key = value"
// lines; both accept the same keys. Pure except for reading the file.
#ifndef SERVER_OPTIONS_COMMAND_LINE_H_
#define SERVER_OPTIONS_COMMAND_LINE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/options/server_options.h"

namespace dcp::server {

// `arguments` are those after the program's name; --config=FILE is applied
// first, wherever it stands. The error lists all mistakes, one per line, with
// key, value and what is allowed.
absl::StatusOr<ServerOptions> ParseServerOptions(
    const std::vector<std::string>& arguments);

// The text that --help prints.
std::string ServerHelp();

}  // namespace dcp::server

#endif  // SERVER_OPTIONS_COMMAND_LINE_H_
