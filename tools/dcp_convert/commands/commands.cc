// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/commands/commands.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/error_detail.h"
#include "third_party/licenses/licenses.h"
#include "tools/dcp_convert/daemon/daemon.h"
#include "tools/dcp_convert/options/command_line_parser.h"
#include "tools/dcp_convert/options/completion.h"
#include "tools/dcp_convert/options/flag_names.h"
#include "tools/dcp_convert/options/help.h"
#include "tools/dcp_convert/options/man_page.h"
#include "tools/dcp_convert/options/map_options.h"
#include "tools/dcp_convert/options/mesh_options.h"
#include "tools/dcp_convert/options/option_table.h"
#include "tools/dcp_convert/output/json_output.h"
#include "tools/dcp_convert/output/render.h"

namespace dcp::tools {
namespace {

absl::StatusOr<ExitCode> RunVerb(const Context& context) {
  switch (*context.line.verb) {
    case Verb::kInspect:
      return RunInspect(context);
    case Verb::kVerify:
      return RunVerify(context);
    case Verb::kDiff:
      return RunDiff(context);
    case Verb::kConvert:
    case Verb::kReshard:
    case Verb::kConsolidate:
    case Verb::kDcpToTorch:
    case Verb::kTorchToDcp:
      return RunConvert(context);
    case Verb::kJobs:
      return RunJobs(context);
    case Verb::kWorkers:
      return RunWorkers(context);
    case Verb::kClean:
      return RunClean(context);
    case Verb::kMaps:
      return RunMaps(context);
  }
  return kExitUsage;
}

void PrintError(const Console& console, absl::string_view message) {
  console.err << absl::StrCat("dcp-convert: ", Printable(message), "\n")
              << std::flush;
}

ExitCode ReportFailure(const Context& context, const absl::Status& status) {
  const ExitCode code = ExitCodeFor(status);
  const char* verb = RowForVerb(*context.line.verb).name;
  const absl::string_view side = SideName(status);
  // The path already names a file; the side says which one if either could be
  // meant. A daemon's reason is shown so that users can look it up.
  const std::string reason = ErrorReasonName(status);
  PrintError(context.console,
             absl::StrCat(verb, ": ", side, side.empty() ? "" : ": ",
                          WithFlags(status), reason.empty() ? "" : " (", reason,
                          reason.empty() ? "" : ")"));
  if (context.line.json) {
    context.console.out << ErrorJson(verb, status, code);
  }
  return code;
}

}  // namespace

ExitCode RunCommand(absl::Span<const std::string> args, Console console,
                    FileSystem& fs, std::stop_token stop,
                    absl::string_view server) {
  absl::StatusOr<CommandLine> line = ParseCommandLine(args, server);
  if (!line.ok()) {
    PrintError(console, WithFlags(line.status()));
    return kExitUsage;
  }
  switch (line->action) {
    case CommandLine::Action::kVersion:
      console.out << VersionText();
      return kExitDone;
    case CommandLine::Action::kLicenses:
      console.out << LicensesText();
      return kExitDone;
    case CommandLine::Action::kHelp:
      console.out << (line->verb.has_value() ? VerbHelp(*line->verb)
                                             : GeneralHelp());
      return kExitDone;
    case CommandLine::Action::kManPage:
      console.out << ManPage();
      return kExitDone;
    case CommandLine::Action::kCompletion:
      console.out << CompletionScript(line->paths[0]);
      return kExitDone;
    case CommandLine::Action::kRun:
      break;
  }
  absl::Status loaded = LoadTpPlan(fs, *line);
  if (loaded.ok()) loaded = LoadMap(fs, *line, stop);
  if (!loaded.ok()) {
    const std::string message = WithFlags(loaded);
    for (absl::string_view text : absl::StrSplit(message, '\n')) {
      PrintError(console, text);
    }
    return SideName(loaded).empty() ? kExitUsage : ExitCodeFor(loaded);
  }
  std::unique_ptr<Daemon> daemon;
  if (!line->server.address.empty() && !IsFleet(*line)) {
    absl::StatusOr<std::unique_ptr<Daemon>> connected =
        Daemon::Connect(*line, stop);
    if (!connected.ok()) {
      PrintError(console, WithFlags(connected.status()));
      return kExitUsage;
    }
    daemon = *std::move(connected);
  }
  const Context context{*line, console, fs, std::move(stop), daemon.get()};
  const absl::StatusOr<ExitCode> code = RunVerb(context);
  return code.ok() ? *code : ReportFailure(context, code.status());
}

}  // namespace dcp::tools
