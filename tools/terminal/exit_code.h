// SPDX-License-Identifier: Apache-2.0
// ExitCode: the exit codes of the process. Scripts rely on the numbers;
// tools/README.md documents them. Pure; any thread.
#ifndef TOOLS_TERMINAL_EXIT_CODE_H_
#define TOOLS_TERMINAL_EXIT_CODE_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace dcp::tools {

enum ExitCode : int {
  kExitDone = 0,         // done, or equal
  kExitFound = 1,        // verify or diff found something
  kExitUsage = 2,        // the command line is wrong
  kExitSource = 3,       // unreadable or malformed
  kExitDestination = 4,  // could not be written
  kExitRefused = 5,      // exists, would not fit, would lose something
  kExitUnchecked = 6,    // verify had nothing to compare the bytes with
  kExitInterrupted = 130,
};

// The code for a status that dcp/checkpoint returned.
ExitCode ExitCodeFor(const absl::Status& status);

// "source", "destination" or "": the end at which `status` arose.
absl::string_view SideName(const absl::Status& status);

}  // namespace dcp::tools

#endif  // TOOLS_TERMINAL_EXIT_CODE_H_
