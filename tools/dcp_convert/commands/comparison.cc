// SPDX-License-Identifier: Apache-2.0
// Compares here or lets the daemon do it, and describes each finding.
// Tested by tests/tools/dcp_convert/check_options_test.cc.
#include "tools/dcp_convert/commands/comparison.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/diff/diff.h"
#include "tools/dcp_convert/daemon/daemon.h"
#include "tools/dcp_convert/options/option_table.h"
#include "tools/dcp_convert/output/progress.h"
#include "tools/dcp_convert/output/render.h"
#include "tools/dcp_convert/output/stopwatch.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {
namespace {

// One finding's text, after the name.
struct Difference {
  std::string what;
  std::string detail;
};

std::string DescribeValues(const DiffFinding& finding) {
  const ElementDifference& difference = finding.difference;
  std::string text =
      absl::StrCat(FormatCount(difference.num_different), " of ",
                   FormatPlural(finding.num_elements, "element"), ", max abs ",
                   absl::StrFormat("%.6g", difference.max_abs), ", max rel ",
                   absl::StrFormat("%.6g", difference.max_rel));
  // Types without representable neighbours do not have this distance.
  if (difference.max_ulp > 0) {
    absl::StrAppend(&text, ", max ", FormatCount(difference.max_ulp), " ulp");
  }
  absl::StrAppend(&text, ", first at ");
  // An earlier server does not send the index by dimension.
  if (finding.first_index.empty() && finding.num_elements > 1) {
    return absl::StrCat(text, FormatCount(difference.first_different));
  }
  return absl::StrCat(text, "[", absl::StrJoin(finding.first_index, ", "), "]");
}

Difference Describe(const DiffFinding& finding) {
  const std::string both = absl::StrCat(finding.in_a, " / ", finding.in_b);
  switch (finding.kind) {
    case DiffFinding::Kind::kOnlyInA:
      return {"only in A", finding.in_a};
    case DiffFinding::Kind::kOnlyInB:
      return {"only in B", finding.in_b};
    case DiffFinding::Kind::kKind:
      return {"kind", both};
    case DiffFinding::Kind::kShape:
      return {"shape", both};
    case DiffFinding::Kind::kDType:
      return {"dtype", both};
    case DiffFinding::Kind::kValues:
      return {"values", DescribeValues(finding)};
    case DiffFinding::Kind::kObject:
      return {"object", both};
    case DiffFinding::Kind::kContainer:
      return {"container", both};
  }
  return {};
}

// The text after "equal".
std::string DescribeTolerance(const std::optional<Tolerance>& tolerance) {
  if (!tolerance.has_value()) return "";
  return absl::StrFormat(" within atol %g and rtol %g%s", tolerance->atol,
                         tolerance->rtol,
                         tolerance->equal_nan ? "" : ", NaN unequal to NaN");
}

DiffOptions MakeDiffOptions(const CommandLine& line) {
  DiffOptions options;
  options.open = SourceOpenOptions(line);
  options.open_b = SecondSourceOpenOptions(line);
  options.selection_a = line.selection;
  options.selection_b = SecondSelection(line);
  options.tensors_only = ComparesTensorsOnly(line);
  options.tolerance = line.diff.tolerance;
  options.memory_bytes = line.memory_bytes;
  return options;
}

absl::StatusOr<DiffReport> Diff(const Context& context,
                                ProgressDisplay& progress, TransferStats& stats,
                                OpenProgress& opening) {
  const CommandLine& line = context.line;
  if (context.daemon != nullptr) {
    return context.daemon->Diff(
        line, {stats, [&](uint64_t bytes) { progress.Start(bytes); }});
  }
  DiffOptions options = MakeDiffOptions(line);
  options.stop = context.stop;
  options.stats = &stats;
  options.open.progress = &opening;
  options.on_plan = [&progress](uint64_t bytes) { progress.Start(bytes); };
  return DiffCheckpoints(context.fs, line.paths[0], line.paths[1],
                         std::move(options));
}

}  // namespace

absl::StatusOr<Comparison> ComparePaths(const Context& context) {
  const CommandLine& line = context.line;
  const Stopwatch stopwatch;
  TransferStats stats;
  OpenProgress opening;
  ProgressDisplay progress(
      context.console, line.verb == Verb::kDiff ? "diff" : "check",
      line.progress, ProgressDisplay::Counting::kReads, stats,
      context.daemon == nullptr ? &opening : nullptr);
  absl::StatusOr<DiffReport> report = Diff(context, progress, stats, opening);
  progress.Finish();
  DCP_RETURN_IF_ERROR(report.status());
  return Comparison{.report = *std::move(report),
                    .seconds = stopwatch.seconds()};
}

std::string RenderComparison(const Comparison& comparison,
                             const std::optional<Tolerance>& tolerance) {
  const DiffReport& report = comparison.report;
  std::string text;
  if (!report.findings.empty()) {
    Table table({{"NAME"}, {"DIFFERS"}, {"HOW (A / B)"}});
    for (const DiffFinding& finding : report.findings) {
      Difference difference = Describe(finding);
      table.AddRow({finding.name, std::move(difference.what),
                    std::move(difference.detail)});
    }
    absl::StrAppend(&text, table.Render(), "\n");
  }
  absl::StrAppend(
      &text,
      report.findings.empty()
          ? absl::StrCat("equal", DescribeTolerance(tolerance))
          : FormatPlural(report.findings.size(), "name") +
                (report.findings.size() == 1 ? " differs" : " differ"),
      ": ", FormatPlural(report.num_tensors_equal, "tensor"), " and ",
      FormatPlural(report.num_objects_equal, "object"),
      report.findings.empty()
          ? ""
          : absl::StrCat(" equal", DescribeTolerance(tolerance)),
      ", ", FormatBytes(report.bytes_compared), " compared in ",
      FormatSeconds(comparison.seconds), "\n");
  if (!report.containers_skipped.empty()) {
    absl::StrAppend(&text, "not compared: ", report.containers_skipped, "\n");
  }
  return text;
}

}  // namespace dcp::tools
