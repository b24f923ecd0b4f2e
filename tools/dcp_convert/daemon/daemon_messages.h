// SPDX-License-Identifier: Apache-2.0
// Converts between the command line and dcp-server's messages: options become
// requests, and an answer becomes an inspection. A verb therefore prints the
// same, whoever did the work. proto/messages converts the parts that the server
// reads and writes too. An answer is untrusted: DataLoss if the contents are
// invalid. Pure; any thread.
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

// An inspection and the data that it points into.
struct OwnedInspection {
  std::vector<CheckpointEntry> entries;
  Inspection inspection;
  uint64_t num_entries = 0;  // in the whole checkpoint
};
absl::StatusOr<OwnedInspection> InspectionFrom(
    const tessera::v1::InspectResponse& message);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_DAEMON_DAEMON_MESSAGES_H_
