// SPDX-License-Identifier: Apache-2.0
// The verb verify: here, on a server, or as a worker.
// Tested by tests/tools/dcp_convert/dcp_convert_test.sh.
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/share/share_verify.h"
#include "dcp/checkpoint/share/work_status.h"
#include "dcp/checkpoint/verify/verify.h"
#include "tools/dcp_convert/commands/commands.h"
#include "tools/dcp_convert/commands/launcher.h"
#include "tools/dcp_convert/commands/work_wait.h"
#include "tools/dcp_convert/daemon/daemon.h"
#include "tools/dcp_convert/output/json_output.h"
#include "tools/dcp_convert/output/progress.h"
#include "tools/dcp_convert/output/render.h"
#include "tools/dcp_convert/output/stopwatch.h"
#include "tools/dcp_convert/output/verify_text.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {
namespace {

VerifyOptions MakeVerifyOptions(const Context& context,
                                ProgressDisplay& progress, TransferStats& stats,
                                OpenProgress& opening) {
  const CommandLine& line = context.line;
  VerifyOptions options;
  options.open = SourceOpenOptions(line);
  options.sample_percent = line.verify.sample_percent;
  options.memory_bytes = line.memory_bytes;
  options.stop = context.stop;
  options.stats = &stats;
  options.open.progress = &opening;
  options.on_plan = [&progress](uint64_t bytes) { progress.Start(bytes); };
  return options;
}

std::string RenderShare(const ShareOutcome& share, const VerifyReport& report) {
  return absl::StrCat(
      "share ", share.share.index, " of ", share.share.count, ": verified ",
      share.num_pieces_done, " of ", FormatPlural(share.num_pieces, "piece"),
      share.is_complete ? "; the report is that of all workers"
                        : absl::StrCat(", ", RenderVerdict(report),
                                       "; the rest is left to other workers"),
      "\n");
}

// Does this worker's share; with --wait, until all is verified.
absl::StatusOr<VerifyReport> VerifyTheShare(const Context& context,
                                            ProgressDisplay& progress,
                                            TransferStats& stats,
                                            OpenProgress& opening,
                                            ShareOutcome& outcome) {
  const CommandLine& line = context.line;
  DCP_ASSIGN_OR_RETURN(outcome.share, RequestedShare(line));
  const Stopwatch stopwatch;
  while (true) {
    DCP_ASSIGN_OR_RETURN(
        ShareVerifyResult result,
        ShareVerify(context.fs, line.paths[0],
                    MakeVerifyOptions(context, progress, stats, opening),
                    {.share = outcome.share,
                     .piece_bytes = line.work.piece_bytes,
                     .records = line.work.records}));
    outcome.plan_id = result.id;
    outcome.num_pieces = result.num_pieces;
    outcome.num_pieces_done += result.num_checked;
    outcome.is_complete = result.is_complete;
    if (result.is_complete || !line.work.wait) return std::move(result.report);
    DCP_RETURN_IF_ERROR(WaitForWork(context, WorkGoal::kAllPieces,
                                    stopwatch.seconds(),
                                    [](const WorkStatus&) {}));
  }
}

absl::StatusOr<VerifyReport> Verify(const Context& context,
                                    ProgressDisplay& progress,
                                    TransferStats& stats, OpenProgress& opening,
                                    std::optional<ShareOutcome>& share) {
  const CommandLine& line = context.line;
  if (context.daemon != nullptr) {
    return context.daemon->Verify(
        line, {stats, [&](uint64_t bytes) { progress.Start(bytes); }});
  }
  if (IsShared(line)) {
    return VerifyTheShare(context, progress, stats, opening, share.emplace());
  }
  return VerifyCheckpoint(context.fs, line.paths[0],
                          MakeVerifyOptions(context, progress, stats, opening));
}

std::string RenderOutcome(absl::string_view path, const VerifyReport& report,
                          const std::optional<ShareOutcome>& share,
                          double seconds) {
  if (!share.has_value()) return RenderReport(path, report, seconds);
  return absl::StrCat(share->is_complete
                          ? RenderReport(path, report, std::nullopt)
                          : RenderFindings(report),
                      RenderShare(*share, report));
}

}  // namespace

absl::StatusOr<ExitCode> RunVerify(const Context& context) {
  const CommandLine& line = context.line;
  const Stopwatch stopwatch;
  TransferStats stats;
  OpenProgress opening;
  ProgressDisplay progress(context.console, "verify", line.progress,
                           ProgressDisplay::Counting::kReads, stats,
                           context.daemon == nullptr ? &opening : nullptr);
  std::optional<ShareOutcome> share;
  const absl::StatusOr<VerifyReport> report =
      Verify(context, progress, stats, opening, share);
  progress.Finish();
  DCP_RETURN_IF_ERROR(report.status());
  const double seconds = stopwatch.seconds();
  context.console.err << RenderWarnings(line.paths[0], report->warnings);
  context.console.out << (line.json ? VerifyJson(
                                          line.paths[0], *report, seconds,
                                          share.has_value() ? &*share : nullptr)
                                    : RenderOutcome(line.paths[0], *report,
                                                    share, seconds));
  // If several workers share the work, only one that knows all findings reports
  // them.
  if (share.has_value() && !share->is_complete) return kExitDone;
  return CodeOfReport(*report, line.verify.strict);
}

}  // namespace dcp::tools
