// SPDX-License-Identifier: Apache-2.0
// WaitForWork: waits for workers that share a conversion or a verify. It looks
// at the records that they leave at the destination, or in --records' folder.
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
  // All are written, whether or not the checkpoint is there; or verified.
  kAllPieces,
  kCheckpoint,  // is there
};

// Waits at most as long as --wait-for allows, less `passed_seconds`. Calls
// `show` each time that it finds unfinished work. DeadlineExceeded names the
// missing pieces; Cancelled after a stop.
absl::Status WaitForWork(const Context& context, WorkGoal goal,
                         double passed_seconds,
                         absl::FunctionRef<void(const WorkStatus&)> show);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_COMMANDS_WORK_WAIT_H_
