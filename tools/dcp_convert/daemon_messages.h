// Converts between the command line and dcp-server's messages: requests from
// options, reports from answers, so that a verb prints the same whether a
// server or this process did its work. Answers are untrusted: those with
// invalid contents give DataLoss. Pure; any thread.
#ifndef TOOLS_DCP_CONVERT_DAEMON_MESSAGES_H_
#define TOOLS_DCP_CONVERT_DAEMON_MESSAGES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/diff.h"
#include "dcp/checkpoint/verify.h"
#include "tessera/v1/checkpoint_service.pb.h"
#include "tessera/v1/job_service.pb.h"
#include "tools/dcp_convert/command_line.h"
#include "tools/dcp_convert/inspection.h"

namespace dcp::tools {

tessera::v1::Source SourceMessage(const std::string& path, int64_t rank);
tessera::v1::Selection SelectionMessage(const SelectionOptions& selection);

tessera::v1::ConvertRequest ConvertMessage(const CommandLine& line);
tessera::v1::ReshardRequest ReshardMessage(const CommandLine& line);
tessera::v1::ConsolidateRequest ConsolidateMessage(const CommandLine& line);
tessera::v1::VerifyCheckpointRequest VerifyMessage(const CommandLine& line);
tessera::v1::DiffRequest DiffMessage(const CommandLine& line);

absl::StatusOr<VerifyReport> VerifyReportFrom(
    const tessera::v1::VerifyReport& message);
absl::StatusOr<DiffReport> DiffReportFrom(
    const tessera::v1::DiffReport& message);
absl::StatusOr<ConvertPlan> ConvertPlanFrom(
    const tessera::v1::ConvertResult& message);

// An inspection and what it points into.
struct OwnedInspection {
  std::vector<CheckpointEntry> entries;
  Inspection inspection;
  uint64_t num_entries = 0;  // of the whole checkpoint
};
absl::StatusOr<OwnedInspection> InspectionFrom(
    const tessera::v1::InspectResponse& message);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_DAEMON_MESSAGES_H_
