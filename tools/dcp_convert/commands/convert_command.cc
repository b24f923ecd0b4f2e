// SPDX-License-Identifier: Apache-2.0
// The verbs that write: convert here, on a server, or as a worker; or only
// plan.
// Tested by tests/tools/dcp_convert/dcp_convert_test.sh.
#include <algorithm>
#include <cstdlib>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/peak_memory.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/destination/destination_path.h"
#include "dcp/checkpoint/files/format.h"
#include "dcp/checkpoint/share/share_convert.h"
#include "tools/dcp_convert/commands/available_memory.h"
#include "tools/dcp_convert/commands/commands.h"
#include "tools/dcp_convert/commands/comparison.h"
#include "tools/dcp_convert/commands/fleet.h"
#include "tools/dcp_convert/commands/launcher.h"
#include "tools/dcp_convert/commands/work_wait.h"
#include "tools/dcp_convert/daemon/daemon.h"
#include "tools/dcp_convert/options/option_table.h"
#include "tools/dcp_convert/output/convert_text.h"
#include "tools/dcp_convert/output/json_output.h"
#include "tools/dcp_convert/output/map_plan_text.h"
#include "tools/dcp_convert/output/output_stream.h"
#include "tools/dcp_convert/output/progress.h"
#include "tools/dcp_convert/output/render.h"
#include "tools/dcp_convert/output/stopwatch.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {
namespace {

constexpr size_t kMaxFilesPlanned = 16;
// The plan mentions the index if it takes at least this many bytes.
constexpr uint64_t kMinIndexShown = uint64_t{1} << 20;

// Whether the destination is the only written file.
bool IsOneFile(const ConvertPlan& plan, const DestinationPath& dst) {
  return plan.to == Format::kTorch || dst.text() == "-" ||
         (plan.to == Format::kSafetensors &&
          dst.format() == Format::kSafetensors);
}

absl::Status CheckAssets(const ConvertPlan& plan, const CommandLine& line) {
  if (line.write.spec.assets.empty() ||
      (plan.to == Format::kSafetensors && !IsOneFile(plan, line.write.dst))) {
    return absl::OkStatus();
  }
  return WithSide(absl::InvalidArgumentError(absl::StrCat(
                      "--assets requires a directory of safetensors, but ",
                      line.write.dst.text(), " becomes ", FormatName(plan.to),
                      plan.to == Format::kSafetensors ? " in one file" : "")),
                  ErrorSide::kDestination);
}

ConvertOptions MakeConvertOptions(const Context& context) {
  const CommandLine& line = context.line;
  ConvertOptions options;
  static_cast<ConvertSpec&>(options) = MakeConvertSpec(line);
  options.writer = absl::StrCat("dcp-convert ", RowForVerb(*line.verb).name);
  options.direct = line.source.direct;
  options.num_lanes = line.write.num_lanes;
  options.memory_bytes = line.memory_bytes;
  options.stop = context.stop;
  options.admit = [&line](const ConvertPlan& plan) {
    DCP_RETURN_IF_ERROR(CheckAssets(plan, line));
    // The memory for the index has already been taken.
    return CheckAvailableMemory(plan.memory_bytes, FindAvailableMemory());
  };
  return options;
}

std::string RenderFiles(const ConvertPlan& plan, const DestinationPath& dst) {
  Table table({{"FILE"}, {"SIZE", Align::kRight}});
  uint64_t rest_bytes = 0;
  for (const ConvertPlan::OutputFile& file : plan.files) {
    if (table.num_rows() < kMaxFilesPlanned) {
      table.AddRow(
          {IsOneFile(plan, dst) ? dst.text() : JoinPath(dst.text(), file.name),
           FormatBytes(file.bytes)});
    } else {
      rest_bytes += file.bytes;
    }
  }
  if (plan.files.size() > kMaxFilesPlanned) {
    table.AddRow(
        {absl::StrCat("(", plan.files.size() - kMaxFilesPlanned, " more)"),
         FormatBytes(rest_bytes)});
  }
  return table.Render();
}

std::string RenderPlan(const ConvertPlan& plan, const CommandLine& line) {
  return absl::StrCat(
      RenderContents(plan), "would read ", FormatCount(plan.bytes_to_read),
      " bytes, write ", FormatCount(plan.bytes_to_write), " bytes, using ",
      FormatMemory(plan.memory_bytes + plan.index_bytes), " of memory",
      plan.index_bytes < kMinIndexShown
          ? ""
          : absl::StrCat(" (", FormatMemory(plan.index_bytes),
                         " for the index)"),
      // A server does not report the lanes that it uses.
      plan.num_lanes == 0
          ? ""
          : absl::StrCat(" in ", FormatPlural(plan.num_lanes, "lane")),
      line.write.check ? ", and then read both again to compare them" : "",
      "\n\n", RenderFiles(plan, line.write.dst),
      plan.map.has_value() ? RenderMapPlan(*plan.map) : "");
}

std::string RenderShare(const ShareOutcome& share) {
  return absl::StrCat("share ", share.share.index, " of ", share.share.count,
                      ": wrote ", share.num_pieces_done, " of ",
                      FormatPlural(share.num_pieces, "piece"), "; ",
                      share.has_committed ? "the checkpoint is there"
                      : share.is_complete
                          ? "the checkpoint is there, by another worker"
                          : "the rest is left to other workers",
                      "\n");
}

std::string RenderOutcome(const ConvertPlan& plan, const DestinationPath& dst,
                          const ConvertOutcome& outcome) {
  const double rate = static_cast<double>(outcome.bytes_written) /
                      std::max(outcome.seconds, 1e-6);
  // If several workers share the work, one of them shows the contents.
  const bool tells_all =
      !outcome.share.has_value() || outcome.share->has_committed;
  const std::string files = tells_all ? absl::StrCat(RenderFiles(plan, dst),
                                                     "\n", RenderContents(plan))
                                      : "";
  return absl::StrCat(
      files, RenderDoubts(plan),
      outcome.share.has_value() ? RenderShare(*outcome.share) : "", "read ",
      FormatBytes(outcome.bytes_read), ", wrote ",
      FormatBytes(outcome.bytes_written), " in ",
      FormatSeconds(outcome.seconds), " (",
      FormatBytes(static_cast<uint64_t>(rate)), "/s); peak memory ",
      FormatMemory(outcome.peak_memory_bytes), "\n");
}

// Discards the bytes, to plan a stream.
absl::Status IgnoreBytes(ByteSpan /*bytes*/) { return absl::OkStatus(); }

absl::StatusOr<ExitCode> PrintPlan(const Context& context) {
  const CommandLine& line = context.line;
  TransferStats stats;
  ConvertOutcome outcome;
  ConvertOptions options = MakeConvertOptions(context);
  if (WritesToStandardOutput(line)) options.stream = IgnoreBytes;
  DCP_ASSIGN_OR_RETURN(
      const ConvertPlan plan,
      context.daemon != nullptr
          ? context.daemon->Convert(line, {stats, [](uint64_t) {}}, outcome)
          : PlanConvert(context.fs, line.paths[0], line.write.dst,
                        std::move(options)));
  context.console.err << RenderWarnings(line.paths[0], plan.warnings);
  context.console.out << (line.json ? ConvertJson(RowForVerb(*line.verb).name,
                                                  line.paths[0],
                                                  line.write.dst.text(), plan,
                                                  /*outcome=*/nullptr)
                                    : RenderPlan(plan, line));
  return kExitDone;
}

// Does this worker's share; with --wait, until the checkpoint is there.
absl::StatusOr<ConvertPlan> ConvertTheShare(const Context& context,
                                            const ConvertOptions& parts,
                                            ProgressDisplay& progress,
                                            ShareOutcome& outcome) {
  const CommandLine& line = context.line;
  DCP_ASSIGN_OR_RETURN(outcome.share, RequestedShare(line));
  const Stopwatch stopwatch;
  while (true) {
    ConvertOptions options = MakeConvertOptions(context);
    options.stats = parts.stats;
    options.open.progress = parts.open.progress;
    DCP_ASSIGN_OR_RETURN(ShareResult result,
                         ConvertShare(context.fs, line.paths[0],
                                      line.write.dst.text(), std::move(options),
                                      {.share = outcome.share,
                                       .piece_bytes = line.work.piece_bytes,
                                       .on_begin = [&](uint64_t bytes) {
                                         progress.Start(bytes);
                                       }}));
    outcome.plan_id = result.id;
    outcome.num_pieces = result.num_pieces;
    outcome.num_pieces_done += result.num_written;
    outcome.is_complete = result.is_complete;
    outcome.has_committed = result.has_committed;
    if (result.is_complete || !line.work.wait) return std::move(result.plan);
    // If the last other worker dies before it makes the checkpoint appear, this
    // worker does.
    DCP_RETURN_IF_ERROR(WaitForWork(context, WorkGoal::kAllPieces,
                                    stopwatch.seconds(),
                                    [](const WorkStatus&) {}));
  }
}

absl::StatusOr<ConvertPlan> Convert(const Context& context,
                                    ProgressDisplay& progress,
                                    TransferStats& stats, OpenProgress& opening,
                                    ConvertOutcome& outcome) {
  const CommandLine& line = context.line;
  if (IsFleet(line)) {
    return ConvertByFleet(
        context, {stats, [&](uint64_t bytes) { progress.Start(bytes); }},
        outcome);
  }
  if (context.daemon != nullptr) {
    return context.daemon->Convert(
        line, {stats, [&](uint64_t bytes) { progress.Start(bytes); }}, outcome);
  }
  const Stopwatch stopwatch;
  ConvertOptions options = MakeConvertOptions(context);
  options.stats = &stats;
  options.open.progress = &opening;
  if (WritesToStandardOutput(line)) {
    DCP_ASSIGN_OR_RETURN(
        options.stream,
        OpenOutputStream(context.console.out_descriptor, context.stop));
  }
  options.on_plan = [&progress](const ConvertPlan& plan) {
    progress.Start(plan.bytes_to_write);
  };
  std::optional<ShareOutcome> share;
  if (IsShared(line)) share.emplace();
  absl::StatusOr<ConvertPlan> plan =
      IsShared(line) ? ConvertTheShare(context, options, progress, *share)
                     : ConvertCheckpoint(context.fs, line.paths[0],
                                         line.write.dst, std::move(options));
  outcome = {.seconds = stopwatch.seconds(),
             .bytes_read = stats.bytes_read,
             .bytes_written = stats.bytes_written,
             .peak_memory_bytes = PeakMemoryBytes(),
             .share = std::move(share)};
  return plan;
}

absl::Status CheckIsComparable(const Context& context) {
  const CommandLine& line = context.line;
  if (!line.write.check ||
      !LeadToSame(context.fs, line.paths[0], line.write.dst.text())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--check compares ", line.write.dst.text(),
      " with the source, which it replaces: name another destination"));
}

// Compares the result with the source, and says so if they differ.
absl::StatusOr<Comparison> CheckResult(const Context& context) {
  const std::string& dst = context.line.write.dst.text();
  absl::StatusOr<Comparison> comparison = ComparePaths(context);
  if (!comparison.ok()) {
    return Annotate(comparison.status(), dst,
                    " is there, but could not be compared with the source");
  }
  const std::vector<DiffFinding>& findings = comparison->report.findings;
  if (!findings.empty()) {
    context.console.err << absl::StrCat(
                               "dcp-convert: ", Printable(dst),
                               " stays, but differs from the source in ",
                               FormatPlural(findings.size(), "tensor"), ": ",
                               Printable(findings[0].name),
                               findings.size() > 1 ? ", ...\n" : "\n")
                        << std::flush;
  }
  return comparison;
}

}  // namespace

absl::StatusOr<ExitCode> RunConvert(const Context& context) {
  const CommandLine& line = context.line;
  DCP_RETURN_IF_ERROR(CheckIsComparable(context));
  if (line.write.plan) return PrintPlan(context);
  const char* verb = RowForVerb(*line.verb).name;
  TransferStats stats;
  OpenProgress opening;
  ConvertOutcome outcome;
  ProgressDisplay progress(context.console, verb, line.progress,
                           ProgressDisplay::Counting::kWrites, stats,
                           context.daemon == nullptr ? &opening : nullptr);
  const absl::StatusOr<ConvertPlan> plan =
      Convert(context, progress, stats, opening, outcome);
  progress.Finish();
  DCP_RETURN_IF_ERROR(plan.status());
  context.console.err << RenderWarnings(line.paths[0], plan->warnings);
  std::ostream& out =
      WritesToStandardOutput(line) ? context.console.err : context.console.out;
  if (!line.json) {
    out << RenderOutcome(*plan, line.write.dst, outcome) << std::flush;
  }
  if (line.write.check) {
    DCP_ASSIGN_OR_RETURN(outcome.comparison, CheckResult(context));
    if (!line.json) out << RenderComparison(*outcome.comparison, {});
  }
  if (line.json) {
    out << ConvertJson(verb, line.paths[0], line.write.dst.text(), *plan,
                       &outcome);
  }
  return outcome.comparison.has_value() &&
                 !outcome.comparison->report.findings.empty()
             ? kExitFound
             : kExitDone;
}

}  // namespace dcp::tools
