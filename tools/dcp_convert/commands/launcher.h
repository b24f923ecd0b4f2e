// SPDX-License-Identifier: Apache-2.0
// Which share of the work this process has, by what the launcher that
// started it has put into its environment: Slurm, MPI, torchrun or Kubernetes.
// Pure; any thread.
#ifndef TOOLS_DCP_CONVERT_COMMANDS_LAUNCHER_H_
#define TOOLS_DCP_CONVERT_COMMANDS_LAUNCHER_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/plan/pieces.h"
#include "tools/dcp_convert/options/command_line.h"

namespace dcp::tools {

// The value of a variable; null if it is not set. getenv is one.
using Environment = absl::FunctionRef<const char*(const char* name)>;

// The share that the launcher says. `num_workers` is what the user says, or 0;
// only Kubernetes, which does not tell the number, requires it. InvalidArgument
// that names what was found if that is nothing, or several launchers that
// contradict each other or the user. A launcher that runs inside another one,
// as torchrun and mpirun do inside Slurm, comes first.
absl::StatusOr<Share> ShareFromLauncher(Environment environment,
                                        uint32_t num_workers);

// The share that `line` asks for, which IsShared; if it leaves that to the
// launcher, by the environment of this process.
absl::StatusOr<Share> ShareOf(const CommandLine& line);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_COMMANDS_LAUNCHER_H_
