// Tested by tests/tools/dcp_convert/dcp_convert_test.sh.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/verify.h"
#include "tools/dcp_convert/commands.h"
#include "tools/dcp_convert/daemon.h"
#include "tools/dcp_convert/json_output.h"
#include "tools/dcp_convert/progress.h"
#include "tools/dcp_convert/render.h"
#include "tools/dcp_convert/stopwatch.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {
namespace {

std::string RenderFindings(const VerifyReport& report) {
  if (report.findings.empty()) return "";
  Table table({{"NAME"}, {"FILE"}, {"OFFSET", Align::kRight}, {"PROBLEM"}});
  for (const VerifyFinding& finding : report.findings) {
    table.AddRow({finding.name.empty() ? "(checkpoint)" : finding.name,
                  finding.file, absl::StrCat(finding.offset), finding.problem});
  }
  return absl::StrCat(table.Render(), "\n");
}

std::string RenderReport(absl::string_view path, const VerifyReport& report,
                         double seconds) {
  std::string text = RenderFindings(report);
  absl::StrAppend(&text, Printable(path), ": ", FormatName(report.format), ", ",
                  FormatPlural(report.num_tensors, "tensor"), " in ",
                  FormatPlural(report.num_chunks, "chunk"), ", ",
                  FormatPlural(report.num_objects, "object"), "\n");
  absl::StrAppend(&text, "checked ", FormatCount(report.num_items_checked),
                  " of ", FormatPlural(report.num_items, "item"), ", ",
                  FormatBytes(report.bytes_checked), ", in ",
                  FormatSeconds(seconds), ": ",
                  FormatPlural(report.num_crcs_checked, "CRC"), ", ",
                  FormatPlural(report.num_digests_checked, "digest"), "\n");
  if (report.num_items_unchecked > 0) {
    const bool one = report.num_items_unchecked == 1;
    absl::StrAppend(&text, FormatPlural(report.num_items_unchecked, "item"),
                    one ? " has" : " have",
                    " neither CRC nor digest: ", one ? "its" : "their",
                    " bytes may be wrong\n");
  }
  absl::StrAppend(
      &text,
      report.findings.empty()
          ? "no problem found"
          : FormatPlural(report.findings.size(), "problem") + " found",
      "\n");
  return text;
}

absl::StatusOr<VerifyReport> Verify(const Context& context,
                                    ProgressDisplay& progress,
                                    TransferStats& stats,
                                    OpenProgress& opening) {
  const CommandLine& line = context.line;
  if (context.daemon != nullptr) {
    return context.daemon->Verify(
        line, {stats, [&](uint64_t bytes) { progress.Start(bytes); }});
  }
  VerifyOptions options;
  options.open = SourceOptionsOf(line);
  options.sample_percent = line.sample_percent;
  options.memory_bytes = line.memory_bytes;
  options.stop = context.stop;
  options.stats = &stats;
  options.open.progress = &opening;
  options.on_plan = [&progress](uint64_t bytes) { progress.Start(bytes); };
  return VerifyCheckpoint(context.fs, line.paths[0], std::move(options));
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
  const absl::StatusOr<VerifyReport> report =
      Verify(context, progress, stats, opening);
  progress.Finish();
  DCP_RETURN_IF_ERROR(report.status());
  const double seconds = stopwatch.seconds();
  context.console.out << (line.json
                              ? VerifyJson(line.paths[0], *report, seconds)
                              : RenderReport(line.paths[0], *report, seconds));
  return report->findings.empty() ? kExitDone : kExitFound;
}

}  // namespace dcp::tools
