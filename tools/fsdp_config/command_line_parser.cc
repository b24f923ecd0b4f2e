// SPDX-License-Identifier: Apache-2.0
// Reads words as options, checks that they fit together, and writes the help.
//
// Tested by tests/tools/fsdp_config/command_line_test.cc.
#include "tools/fsdp_config/command_line_parser.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "config/dialect_table.h"
#include "config/model/train_config.h"
#include "config/write_config.h"
#include "dcp/base/status.h"
#include "tools/fsdp_config/option_table.h"
#include "tools/options/verb_options.h"

namespace fsdp::tools {
namespace {

using ::dcp::tools::VerbRow;

// The column at which option explanations begin.
constexpr int kHelpColumn = 25;

absl::Status Refuse(const VerbRow& verb, absl::string_view message) {
  return UsageError(Tool(), &verb, message);
}

absl::Status CheckWhole(const VerbRow& verb, const CommandLine& line) {
  if (VerbForRow(verb) == Verb::kInit) {
    if (!line.files.empty()) {
      return Refuse(verb,
                    absl::StrCat("init reads no FILE, but got '", line.file,
                                 "'; --output-file names the one to write"));
    }
    if (line.overwrite && line.output_file.empty()) {
      return Refuse(verb, "--overwrite requires an --output-file");
    }
    return absl::OkStatus();
  }
  if (line.file.empty()) return Refuse(verb, "the FILE is missing");
  if (line.files.size() > 1 && VerbForRow(verb) != Verb::kCheck) {
    return Refuse(verb, absl::StrCat("expected one FILE, but '", line.files[1],
                                     "' is a second one"));
  }
  if (line.file == "-" && line.overwrite && line.output_file.empty()) {
    return Refuse(verb,
                  "standard input cannot be replaced: --overwrite requires an "
                  "--output-file");
  }
  if (VerbForRow(verb) == Verb::kConvert && !line.to.has_value()) {
    return Refuse(verb, "--to DIALECT is missing");
  }
  if (VerbForRow(verb) == Verb::kConvert && line.overwrite &&
      line.output_file.empty()) {
    return Refuse(verb, "--overwrite requires an --output-file");
  }
  return absl::OkStatus();
}

constexpr char kExitCodes[] =
    "Exit codes:\n"
    "  0  done\n"
    "  1  something is wrong with the config\n"
    "  2  the command line is wrong\n"
    "  3  a file is unreadable\n"
    "  4  the output could not be written\n"
    "  5  refused: the output file exists\n";

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(
    absl::Span<const std::string> args) {
  CommandLine line;
  if (args.empty()) return UsageError(Tool(), nullptr, "the VERB is missing");
  if (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    line.action = CommandLine::Action::kHelp;
    return line;
  }
  if (args[0] == "--version") {
    line.action = CommandLine::Action::kVersion;
    return line;
  }
  if (args[0] == "--licenses") {
    line.action = CommandLine::Action::kLicenses;
    return line;
  }
  const VerbRow* verb = FindVerb(Tool(), args[0]);
  if (verb == nullptr) return UnknownVerb(Tool(), args[0]);
  line.verb = VerbForRow(*verb);
  DCP_ASSIGN_OR_RETURN(
      const std::vector<std::string> files,
      ParseVerbOptions(Tool(), *verb, args.subspan(1),
                       [&line](size_t option, absl::string_view value) {
                         return AllOptions()[option].apply(value, line);
                       }));
  for (const std::string& file : files) {
    if (file.empty()) return Refuse(*verb, "the name of a FILE is empty");
    line.files.push_back(file);
  }
  if (!line.files.empty()) line.file = line.files.front();
  if (line.action == CommandLine::Action::kRun) {
    DCP_RETURN_IF_ERROR(CheckWhole(*verb, line));
  }
  return line;
}

std::string GeneralHelp() {
  std::string text =
      "fsdp-config: checks, explains and converts training configs.\n\n"
      "Usage: fsdp-config VERB [OPTION]... FILE\n\n"
      "FILE may be - for standard input; check takes several.\n\nVerbs:\n";
  for (const VerbRow& row : Tool().verbs) {
    absl::StrAppendFormat(&text, "  %-10s%s\n", row.name, row.summary);
  }
  absl::StrAppend(&text, "\nConfigs of these programs are read:\n");
  for (const ConfigDialect dialect : all_dialects()) {
    absl::StrAppendFormat(
        &text, "  %-15s%s\n", dialect_program(dialect),
        can_write(dialect)
            ? absl::StrCat("and written, --to ", dialect_name(dialect))
            : "but not written");
  }
  absl::StrAppend(&text,
                  "\nWhich program a file is for follows from its keys.\n"
                  "'fsdp-config VERB --help' explains a verb, with examples;\n"
                  "'fsdp-config --version' prints the version, and\n"
                  "'fsdp-config --licenses' the licences.\n\n",
                  kExitCodes);
  return text;
}

std::string VerbHelp(Verb verb) {
  const VerbRow& row = RowForVerb(verb);
  std::string text =
      absl::StrCat("Usage: fsdp-config ", row.name, " [OPTION]...",
                   *row.operands == '\0' ? "" : " ", row.operands, "\n\n",
                   row.description, "\nOptions:\n");
  AppendVerbOptions(Tool(), row, kHelpColumn, text);
  absl::StrAppend(&text, "\nExamples:\n");
  AppendExamples(row, text);
  absl::StrAppend(&text, "\n", kExitCodes);
  return text;
}

}  // namespace fsdp::tools
