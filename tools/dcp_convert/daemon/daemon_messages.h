// SPDX-License-Identifier: Apache-2.0
// Converts between the command line and dcp-server's messages: requests from
// options, and an inspection from its answer, so that a verb prints the same
// whether a server or this process did its work; proto/messages converts the
// parts that the server reads and writes too. An answer is untrusted: DataLoss
// for one with invalid contents. Pure; any thread.
#ifndef TOOLS_DCP_CONVERT_DAEMON_DAEMON_MESSAGES_H_
#define TOOLS_DCP_CONVERT_DAEMON_DAEMON_MESSAGES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "tessera/v1/checkpoint_service.pb.h"
#include "tessera/v1/job_service.pb.h"
#include "tools/dcp_convert/options/command_line.h"
#include "tools/dcp_convert/output/inspection.h"

namespace dcp::tools {

tessera::v1::ConvertRequest ConvertMessage(const CommandLine& line);
tessera::v1::ReshardRequest ReshardMessage(const CommandLine& line);
tessera::v1::ConsolidateRequest ConsolidateMessage(const CommandLine& line);
tessera::v1::VerifyCheckpointRequest VerifyMessage(const CommandLine& line);
tessera::v1::DiffRequest DiffMessage(const CommandLine& line);

// An inspection and what it points into.
struct OwnedInspection {
  std::vector<CheckpointEntry> entries;
  Inspection inspection;
  uint64_t num_entries = 0;  // of the whole checkpoint
};
absl::StatusOr<OwnedInspection> InspectionFrom(
    const tessera::v1::InspectResponse& message);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_DAEMON_DAEMON_MESSAGES_H_
