// SPDX-License-Identifier: Apache-2.0
// The verb jobs: lists, awaits or cancels a server's jobs.
// Tested by tests/tools/dcp_convert/dcp_convert_server_test.sh.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "proto/messages/report_messages.h"
#include "tools/dcp_convert/commands/commands.h"
#include "tools/dcp_convert/daemon/daemon.h"
#include "tools/dcp_convert/output/convert_text.h"
#include "tools/dcp_convert/output/json_output.h"
#include "tools/dcp_convert/output/progress.h"
#include "tools/dcp_convert/output/render.h"
#include "tools/dcp_convert/output/verify_text.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {
namespace {

JobRow RowFrom(const client::Job& job) {
  const tessera::v1::JobMetadata& metadata = job.metadata;
  return {.name = job.name,
          .kind = tessera::v1::JobMetadata::Kind_Name(metadata.kind()),
          .state = tessera::v1::JobMetadata::State_Name(metadata.state()),
          .src = metadata.source(),
          .dst = metadata.destination(),
          .done_bytes = metadata.bytes_done(),
          .total_bytes = metadata.bytes_total(),
          .error = std::string(job.status.message())};
}

void Print(const Context& context, const std::vector<JobRow>& jobs) {
  if (context.line.json) {
    context.console.out << JobsJson(jobs);
    return;
  }
  Table table({{"JOB"},
               {"KIND"},
               {"STATE"},
               {"DONE", Align::kRight},
               {"OF", Align::kRight},
               {"SOURCE"},
               {"DESTINATION"}});
  for (const JobRow& job : jobs) {
    table.AddRow({job.name, job.kind, job.state, FormatBytes(job.done_bytes),
                  FormatBytes(job.total_bytes), job.src, job.dst});
  }
  context.console.out << table.Render();
}

void PrintResult(const Context& context, const JobRow& row) {
  Print(context, {row});
  const Console& console = context.console;
  if (row.converted.has_value()) {
    console.err << RenderWarnings(row.src, row.converted->warnings);
    if (context.line.json) return;
    console.out << "\n"
                << RenderContents(*row.converted)
                << RenderDoubts(*row.converted);
  }
  if (row.verified.has_value()) {
    console.err << RenderWarnings(row.src, row.verified->warnings);
    if (context.line.json) return;
    console.out << "\n" << RenderReport(row.src, *row.verified, std::nullopt);
  }
}

absl::StatusOr<ExitCode> WaitForJob(const Context& context) {
  TransferStats stats;
  ProgressDisplay progress(context.console, "jobs", context.line.progress,
                           ProgressDisplay::Counting::kWrites, stats,
                           /*opening=*/nullptr);
  const absl::StatusOr<client::Job> job = context.daemon->WaitJob(
      context.line.paths[1],
      {stats, [&](uint64_t bytes) { progress.Start(bytes); }});
  progress.Finish();
  DCP_RETURN_IF_ERROR(job.status());
  // The command ends, and prints, as the verb itself would have.
  DCP_RETURN_IF_ERROR(job->status);
  JobRow row = RowFrom(*job);
  if (job->converted.has_value()) {
    DCP_ASSIGN_OR_RETURN(row.converted, ConvertPlanFromProto(*job->converted));
  }
  if (job->verified.has_value()) {
    DCP_ASSIGN_OR_RETURN(row.verified, VerifyReportFromProto(*job->verified));
  }
  PrintResult(context, row);
  const bool found =
      row.verified.has_value() && !row.verified->findings.empty();
  return found ? kExitFound : kExitDone;
}

}  // namespace

absl::StatusOr<ExitCode> RunJobs(const Context& context) {
  const std::string& action = context.line.paths[0];
  if (action == "wait") return WaitForJob(context);
  if (action == "cancel") {
    DCP_RETURN_IF_ERROR(context.daemon->CancelJob(context.line.paths[1]));
    return kExitDone;
  }
  DCP_ASSIGN_OR_RETURN(const std::vector<client::Job> jobs,
                       context.daemon->ListJobs());
  std::vector<JobRow> rows;
  for (const client::Job& job : jobs) rows.push_back(RowFrom(job));
  Print(context, rows);
  return kExitDone;
}

}  // namespace dcp::tools
