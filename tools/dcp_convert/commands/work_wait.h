// SPDX-License-Identifier: Apache-2.0
// WaitForWork: waits for workers that share a conversion or a verify, by
// looking at what they leave at the destination, or where --records says.
// Blocking; one thread.
#ifndef TOOLS_DCP_CONVERT_COMMANDS_WORK_WAIT_H_
#define TOOLS_DCP_CONVERT_COMMANDS_WORK_WAIT_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "dcp/checkpoint/share/work_status.h"
#include "tools/dcp_convert/commands/commands.h"

namespace dcp::tools {

enum class WorkGoal : uint8_t {
  // Are written, whether or not the checkpoint is there; or verified.
  kAllPieces,
  kCheckpoint,  // is there
};

// Waits at most until the time that --wait-for allows, of which
// `passed_seconds` have passed already. Calls `show` each time that it has
// looked and found unfinished work. DeadlineExceeded that says what is missing;
// Cancelled after a stop.
absl::Status WaitForWork(const Context& context, WorkGoal goal,
                         double passed_seconds,
                         absl::FunctionRef<void(const WorkStatus&)> show);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_COMMANDS_WORK_WAIT_H_
