// SPDX-License-Identifier: Apache-2.0
// ConvertByFleet: lets several dcp-servers, none of which knows the others,
// share one conversion. Each does one share. If a server no longer answers,
// another one does that share. Blocking; one thread.
#ifndef TOOLS_DCP_CONVERT_COMMANDS_FLEET_H_
#define TOOLS_DCP_CONVERT_COMMANDS_FLEET_H_

#include "absl/status/statusor.h"
#include "dcp/checkpoint/convert/convert_plan.h"
#include "tools/dcp_convert/commands/commands.h"
#include "tools/dcp_convert/daemon/daemon.h"
#include "tools/dcp_convert/output/json_output.h"

namespace dcp::tools {

// The servers are the command line's, for which IsFleet is true. A stop, or a
// share's error, cancels all jobs. Written pieces stay for the next run, which
// may have other servers. Unavailable when no server answers any more.
absl::StatusOr<ConvertPlan> ConvertByFleet(const Context& context,
                                           DaemonProgress progress,
                                           ConvertOutcome& outcome);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_COMMANDS_FLEET_H_
