// SPDX-License-Identifier: Apache-2.0
// This process's share of the work, from the environment that the launcher gave
// it: Slurm, MPI, torchrun or Kubernetes. Pure; any thread.
#ifndef TOOLS_DCP_CONVERT_COMMANDS_LAUNCHER_H_
#define TOOLS_DCP_CONVERT_COMMANDS_LAUNCHER_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/plan/pieces.h"
#include "tools/dcp_convert/options/command_line.h"

namespace dcp::tools {

// A variable's value; null if it is not set. getenv is one.
using Environment = absl::FunctionRef<const char*(const char* name)>;

// The share that the launcher gives. `num_workers` is the user's number, or 0.
// Only Kubernetes, which does not tell the number, requires it. InvalidArgument
// if there is no launcher, or if several launchers contradict each other or the
// user; it names all that was found. A launcher that runs inside another one,
// as torchrun and mpirun do inside Slurm, comes first.
absl::StatusOr<Share> ShareFromLauncher(Environment environment,
                                        uint32_t num_workers);

// The share that `line`, for which IsShared is true, asks for. With --workers,
// this process's environment decides.
absl::StatusOr<Share> RequestedShare(const CommandLine& line);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_COMMANDS_LAUNCHER_H_
