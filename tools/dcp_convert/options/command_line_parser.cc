// SPDX-License-Identifier: Apache-2.0
// Finds the verb, lets the tables parse the options, and checks that they fit
// together.
// Tested by tests/tools/dcp_convert/options/command_line_test.cc.
#include "tools/dcp_convert/options/command_line_parser.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/format.h"
#include "tools/dcp_convert/options/completion.h"
#include "tools/dcp_convert/options/mesh_options.h"
#include "tools/dcp_convert/options/option_table.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {
namespace {

// The operands of the verbs that write.
constexpr absl::string_view kSourceAndDestination = "SRC DST";

absl::Status Refuse(const VerbRow& verb, absl::string_view message) {
  return UsageError(Tool(), &verb, message);
}

std::string ToText(const Action& action) {
  return action.operand == nullptr
             ? std::string(action.name)
             : absl::StrCat(action.name, " ", action.operand);
}

absl::Status CheckAction(const VerbRow& verb, const CommandLine& line,
                         absl::Span<const Action> actions) {
  const std::string name = line.paths.empty() ? "" : line.paths[0];
  const auto* const found =
      std::find_if(actions.begin(), actions.end(),
                   [&](const Action& action) { return name == action.name; });
  if (found == actions.end()) {
    std::vector<std::string> known;
    for (const Action& action : actions) known.push_back(ToText(action));
    const std::string last = std::move(known.back());
    known.pop_back();
    return Refuse(verb, absl::StrCat("'", name, "' is not ",
                                     absl::StrJoin(known, ", "), " or ", last));
  }
  if (line.paths.size() == (found->operand == nullptr ? 1 : 2)) {
    return absl::OkStatus();
  }
  return Refuse(
      verb, absl::StrCat(verb.name, " ", name,
                         found->operand == nullptr
                             ? " takes no further arguments"
                             : absl::StrCat(" requires one ", found->operand)));
}

// Checks options that only this machine, or only a server, supports.
absl::Status CheckServer(const VerbRow& verb, const CommandLine& line) {
  if (!line.server.address.empty()) {
    if (line.source.direct == DirectMode::kAuto && line.write.num_lanes == 0) {
      return absl::OkStatus();
    }
    return Refuse(
        verb, "the server decides about --direct and --lanes: leave them out");
  }
  if (line.verb == Verb::kJobs) {
    return Refuse(verb, "jobs requires --server, or TESSERA_SERVER");
  }
  if (line.server.tls || !line.server.ca_file.empty() ||
      !line.server.cert_file.empty() || !line.server.key_file.empty() ||
      !line.server.token_file.empty()) {
    return Refuse(verb,
                  "--tls, --tls-ca, --tls-cert, --tls-key and --token-file "
                  "require --server");
  }
  return absl::OkStatus();
}

// Checks that several servers can share the conversion.
absl::Status CheckFleet(const VerbRow& verb, const CommandLine& line) {
  if (!IsFleet(line)) return absl::OkStatus();
  const bool writes = line.verb == Verb::kConvert ||
                      line.verb == Verb::kReshard ||
                      line.verb == Verb::kConsolidate;
  if (writes && !IsShared(line) && !line.write.plan) return absl::OkStatus();
  return Refuse(verb,
                "several servers share a convert, a reshard or a consolidate, "
                "without --plan, --share and --workers: name one server");
}

// Checks options for workers that share the work.
absl::Status CheckWorkers(const VerbRow& verb, const CommandLine& line) {
  if (line.work.share.has_value() && line.work.by_launcher) {
    return Refuse(verb,
                  "--share and --workers both say the share of this worker: "
                  "give only one of the two");
  }
  if (line.work.num_workers != 0 && !line.work.by_launcher) {
    return Refuse(verb, "--num-workers requires --workers");
  }
  if (line.work.wait_seconds != 0 && !line.work.wait) {
    return Refuse(verb, "--wait-for requires --wait");
  }
  if (line.verb == Verb::kWorkers) {
    return line.work.wait && line.workers.discard
               ? Refuse(verb, "--wait and --discard: give only one of the two")
               : absl::OkStatus();
  }
  if (!IsShared(line)) {
    return line.work.wait || !line.work.records.empty()
               ? Refuse(verb,
                        "--wait and --records require --workers or --share")
               : absl::OkStatus();
  }
  if (line.verb == Verb::kVerify &&
      (line.work.records.empty() || !line.server.address.empty())) {
    return Refuse(verb,
                  "workers that share a verify are processes, which leave what "
                  "they find where all of them see it: give --records, and "
                  "leave out --server");
  }
  if (WritesToStandardOutput(line)) {
    return Refuse(verb,
                  "workers write files that all of them see: name a "
                  "destination that is not '-'");
  }
  if (!line.server.address.empty() &&
      (line.work.by_launcher || line.work.wait ||
       line.work.piece_bytes != kPieceBytes)) {
    return Refuse(verb,
                  "--workers, --wait and --piece-size are for workers that "
                  "are processes: a server does the share of --share");
  }
  return absl::OkStatus();
}

// Checks options that are used before the conversion or after it.
absl::Status CheckAround(const VerbRow& verb, const CommandLine& line) {
  if (!line.write.spec.assets.empty() && !line.write.spec.copy_config) {
    return Refuse(verb,
                  "--assets names files to copy, and --no-copy-config copies "
                  "none: give only one of the two");
  }
  if (!line.write.spec.assets.empty() && !line.server.address.empty()) {
    return Refuse(verb,
                  "--assets names a folder of this machine, and a server "
                  "copies only what is next to its source: leave out --server, "
                  "or copy the files into the result");
  }
  if (!line.write.check) return absl::OkStatus();
  if (WritesToStandardOutput(line)) {
    return Refuse(verb,
                  "--check reads what was written, but standard output cannot "
                  "be read again: name a file");
  }
  if (IsShared(line) || IsFleet(line)) {
    return Refuse(verb,
                  "--check reads the whole result, but each worker knows only "
                  "its share: run dcp-convert diff when all are done");
  }
  if (line.write.spec.to_dialect.has_value()) {
    return Refuse(verb,
                  absl::StrCat("--check compares tensors by name, but ",
                               DialectName(*line.write.spec.to_dialect),
                               " gives them others: convert without --check"));
  }
  return absl::OkStatus();
}

// Checks a path that is "-".
absl::Status CheckDash(const VerbRow& verb, const CommandLine& line) {
  if (!WritesToStandardOutput(line)) {
    return Refuse(verb,
                  "'-' is standard input here, or output of a directory, but a "
                  "checkpoint is read and written at random offsets: name "
                  "a file; './-' is a file called '-'");
  }
  if (line.paths[0] == "-") {
    return Refuse(verb,
                  "a checkpoint is read at random offsets, not from standard "
                  "input: name a file; './-' is a file called '-'");
  }
  if (line.write.spec.to == Format::kDcp || line.write.spec.mesh.has_value()) {
    return Refuse(
        verb, "DCP is a directory, but '-' is one stream: name a directory");
  }
  if (!line.server.address.empty()) {
    return Refuse(verb,
                  "a server cannot write to this standard output: "
                  "leave out --server, or name a file");
  }
  if (line.json && !line.write.plan) {
    return Refuse(verb,
                  "with '-' the checkpoint goes to standard output, so "
                  "--json cannot be used");
  }
  return absl::OkStatus();
}

absl::Status CheckOperands(const VerbRow& verb, const CommandLine& line) {
  for (const std::string& path : line.paths) {
    if (path.empty()) return Refuse(verb, "a path is empty");
    if (path == "-") DCP_RETURN_IF_ERROR(CheckDash(verb, line));
  }
  const absl::Span<const Action> actions = VerbActions(verb);
  if (!actions.empty()) return CheckAction(verb, line, actions);
  const std::vector<absl::string_view> operands =
      absl::StrSplit(verb.operands, ' ');
  if (line.paths.size() == operands.size()) return absl::OkStatus();
  return Refuse(verb,
                absl::StrCat(verb.name, " requires ", verb.operands, ", got ",
                             FormatPlural(line.paths.size(), "path")));
}

absl::Status CheckMesh(const VerbRow& verb, const CommandLine& line) {
  if (!line.write.spec.mesh.has_value()) return absl::OkStatus();
  const std::optional<Format> to = line.write.spec.to.has_value()
                                       ? line.write.spec.to
                                       : line.write.dst.format();
  if (line.verb == Verb::kConvert && to.has_value() && *to != Format::kDcp) {
    return Refuse(verb, absl::StrCat("--mesh requires DCP output, but the "
                                     "output is ",
                                     FormatName(*to)));
  }
  return absl::OkStatus();
}

// Checks each verb's rules about several options.
absl::Status CheckCombination(const VerbRow& verb, const CommandLine& line) {
  DCP_RETURN_IF_ERROR(CheckOperands(verb, line));
  DCP_RETURN_IF_ERROR(CheckServer(verb, line));
  DCP_RETURN_IF_ERROR(CheckMesh(verb, line));
  DCP_RETURN_IF_ERROR(CheckFleet(verb, line));
  DCP_RETURN_IF_ERROR(CheckWorkers(verb, line));
  DCP_RETURN_IF_ERROR(CheckAround(verb, line));
  if (line.inspect.all && line.inspect.depth != 0) {
    return Refuse(verb,
                  "--all lists every tensor, and --depth groups them: "
                  "give only one of the two");
  }
  if (line.verb == Verb::kReshard) {
    if (!line.write.spec.mesh.has_value()) {
      return Refuse(verb, "reshard requires --mesh, such as --mesh shard=4");
    }
    if (line.write.dst.format().has_value()) {
      return Refuse(verb,
                    absl::StrCat("reshard writes a DCP directory; to write '",
                                 line.write.dst.text(), "', use consolidate"));
    }
  }
  if (line.verb == Verb::kConsolidate && !line.write.spec.to.has_value() &&
      !WritesToStandardOutput(line) && !line.write.dst.format().has_value()) {
    return Refuse(
        verb,
        absl::StrCat("the name '", line.write.dst.text(),
                     "' does not tell the format: use a name that ends in "
                     ".pt or .safetensors, or give --to"));
  }
  return absl::OkStatus();
}

absl::StatusOr<CommandLine> ParseCompletion(
    absl::Span<const std::string> args) {
  const absl::Span<const absl::string_view> shells = CompletionShells();
  if (args.size() != 2 ||
      std::find(shells.begin(), shells.end(), args[1]) == shells.end()) {
    return UsageError(Tool(), nullptr,
                      absl::StrCat("completion requires a shell: ",
                                   absl::StrJoin(shells, ", ")));
  }
  CommandLine line;
  line.action = CommandLine::Action::kCompletion;
  line.paths.push_back(args[1]);
  return line;
}

// Handles "help", "help VERB", "--help", "--version" and similar words; nullopt
// for any other first word.
absl::StatusOr<std::optional<CommandLine>> ParseWithoutVerb(
    absl::Span<const std::string> args) {
  CommandLine line;
  const std::string& first = args[0];
  if (first == "--version" || first == "-V" || first == "version") {
    line.action = CommandLine::Action::kVersion;
    return line;
  }
  if (first == "--licenses") {
    line.action = CommandLine::Action::kLicenses;
    return line;
  }
  if (first == "--help" || first == "-h" || first == "help") {
    line.action = CommandLine::Action::kHelp;
    if (args.size() == 1) return line;
    const VerbRow* row = FindVerb(Tool(), args[1]);
    if (row == nullptr) return UnknownVerb(Tool(), args[1]);
    line.verb = VerbForRow(*row);
    return line;
  }
  if (first == "man") {
    line.action = CommandLine::Action::kManPage;
    return line;
  }
  if (first == "completion") return ParseCompletion(args);
  if (absl::StartsWith(first, "-")) {
    return UsageError(Tool(), nullptr,
                      absl::StrCat("'", first,
                                   "' is not a verb: the usage is "
                                   "dcp-convert VERB [OPTION]..."));
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(absl::Span<const std::string> args,
                                             absl::string_view server) {
  if (args.empty()) {
    return UsageError(Tool(), nullptr,
                      "the verb is missing, such as inspect or convert");
  }
  DCP_ASSIGN_OR_RETURN(const std::optional<CommandLine> general,
                       ParseWithoutVerb(args));
  if (general.has_value()) return *general;
  const VerbRow* verb = FindVerb(Tool(), args[0]);
  if (verb == nullptr) return UnknownVerb(Tool(), args[0]);
  CommandLine line;
  line.verb = VerbForRow(*verb);
  DCP_ASSIGN_OR_RETURN(
      line.paths,
      ParseVerbOptions(Tool(), *verb, args.subspan(1),
                       [&line](size_t option, absl::string_view value) {
                         return AllOptions()[option].apply(value, line);
                       }));
  if (line.action == CommandLine::Action::kHelp) return line;
  if (verb->operands == kSourceAndDestination && line.paths.size() == 2) {
    line.write.dst = line.paths[1];
  }
  // A verb without --server ignores the variable too.
  if (line.server.address.empty() && line.verb != Verb::kWorkers &&
      line.verb != Verb::kClean && line.verb != Verb::kMaps) {
    line.server.address = std::string(server);
  }
  if (line.verb == Verb::kWorkers && !line.work.records.empty()) {
    line.paths.push_back(line.work.records);
  }
  if (const absl::Status resolved = ResolveMeshOptions(line); !resolved.ok()) {
    return Refuse(*verb, resolved.message());
  }
  DCP_RETURN_IF_ERROR(CheckCombination(*verb, line));
  return line;
}

}  // namespace dcp::tools
