#include "tools/dcp_convert/command_line.h"

#include <getopt.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "dcp/base/nearest_word.h"
#include "dcp/base/status.h"
#include "tools/dcp_convert/completion.h"
#include "tools/dcp_convert/option_table.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {
namespace {

// getopt_long returns this plus the row of an option; all characters, including
// its own '?' and ':', are smaller.
constexpr int kFirstOption = 256;

std::string TryHelp(const VerbRow* verb) {
  return verb == nullptr
             ? "try dcp-convert --help"
             : absl::StrCat("try dcp-convert ", verb->name, " --help");
}

absl::Status UsageError(const VerbRow* verb, absl::string_view message) {
  return absl::InvalidArgumentError(
      absl::StrCat(message, " (", TryHelp(verb), ")"));
}

absl::Status UnknownVerb(absl::string_view word) {
  std::vector<absl::string_view> names;
  for (const VerbRow& row : AllVerbs()) names.emplace_back(row.name);
  names.insert(names.end(), {"help", "man", "completion"});
  const absl::string_view nearest = NearestWord(word, names);
  if (nearest.empty()) {
    return UsageError(nullptr,
                      absl::StrCat("unknown verb '", word, "': there are ",
                                   absl::StrJoin(names, ", ")));
  }
  return UsageError(nullptr, absl::StrCat("unknown verb '", word,
                                          "': did you mean '", nearest, "'?"));
}

std::string VerbsThatTake(const OptionRow& option) {
  std::vector<absl::string_view> names;
  for (const VerbRow& row : AllVerbs()) {
    if (option.verbs & VerbBit(row.verb)) names.emplace_back(row.name);
  }
  return absl::StrJoin(names, ", ");
}

// `word` is the argument as given, "--name" or "--name=value".
absl::Status UnknownOption(const VerbRow& verb, absl::string_view word) {
  const absl::string_view name =
      absl::StripPrefix(word.substr(0, word.find('=')), "--");
  if (const OptionRow* other = FindOption(name); other != nullptr) {
    return UsageError(&verb,
                      absl::StrCat("--", name, " is no option of ", verb.name,
                                   " but of ", VerbsThatTake(*other)));
  }
  std::vector<absl::string_view> names;
  std::vector<absl::string_view> begins_so;
  for (const OptionRow& row : AllOptions()) {
    if (!(row.verbs & VerbBit(verb.verb))) continue;
    names.emplace_back(row.name);
    if (absl::StartsWith(row.name, name)) begins_so.emplace_back(row.name);
  }
  if (begins_so.size() > 1) {
    return UsageError(&verb,
                      absl::StrCat("option '--", name, "' is ambiguous: --",
                                   absl::StrJoin(begins_so, ", --")));
  }
  const absl::string_view nearest = NearestWord(name, names);
  if (nearest.empty()) {
    return UsageError(&verb, absl::StrCat("unknown option '--", name, "'"));
  }
  return UsageError(&verb, absl::StrCat("unknown option '--", name,
                                        "': did you mean '--", nearest, "'?"));
}

// The tables in getopt's form, and the words in memory that getopt may permute.
struct GetoptInput {
  std::vector<std::string> words;
  std::vector<char*> argv;
  std::vector<option> options;
};

GetoptInput MakeGetoptInput(const VerbRow& verb,
                            absl::Span<const std::string> args) {
  GetoptInput input;
  input.words.emplace_back(verb.name);
  input.words.insert(input.words.end(), args.begin(), args.end());
  for (std::string& word : input.words) input.argv.push_back(word.data());
  input.argv.push_back(nullptr);
  const absl::Span<const OptionRow> rows = AllOptions();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!(rows[i].verbs & VerbBit(verb.verb))) continue;
    input.options.push_back(
        {rows[i].name,
         rows[i].value == nullptr ? no_argument : required_argument, nullptr,
         kFirstOption + static_cast<int>(i)});
  }
  input.options.push_back({nullptr, 0, nullptr, 0});
  return input;
}

// Explains what getopt_long rejected: `code` is '?' or ':'.
absl::Status GetoptError(const VerbRow& verb, const GetoptInput& input,
                         int code) {
  const absl::string_view word = input.argv[static_cast<size_t>(optind - 1)];
  if (optopt >= kFirstOption) {
    const OptionRow& row =
        AllOptions()[static_cast<size_t>(optopt - kFirstOption)];
    return UsageError(
        &verb, code == ':' ? absl::StrCat("option --", row.name,
                                          " wants a value: ", row.value)
                           : absl::StrCat("option --", row.name,
                                          " takes no value: '", word, "'"));
  }
  if (optopt == 0) return UnknownOption(verb, word);
  const char letter = static_cast<char>(optopt);
  return UsageError(&verb, absl::StrCat("unknown option '-",
                                        absl::string_view(&letter, 1), "'"));
}

// The name of the option that getopt_long just returned, as the user wrote it.
absl::string_view OptionWord(const GetoptInput& input) {
  const size_t last = static_cast<size_t>(optind - 1);
  const size_t index = optarg == input.argv[last] ? last - 1 : last;
  const absl::string_view word = input.argv[index];
  return absl::StripPrefix(word.substr(0, word.find('=')), "--");
}

absl::Status ParseOptions(const VerbRow& verb,
                          absl::Span<const std::string> args,
                          CommandLine& line) {
  GetoptInput input = MakeGetoptInput(verb, args);
  const int argc = static_cast<int>(input.words.size());
  opterr = 0;
  optind = 0;  // makes glibc start again
  while (true) {
    const int code = getopt_long(argc, input.argv.data(), ":h",
                                 input.options.data(), nullptr);
    if (code == -1) break;
    if (code == 'h') {
      line.action = CommandLine::Action::kHelp;
      continue;
    }
    if (code < kFirstOption) return GetoptError(verb, input, code);
    const OptionRow& row =
        AllOptions()[static_cast<size_t>(code - kFirstOption)];
    // getopt accepts the beginning of a name as the name, but this word may be
    // the whole name of another verb's option.
    const absl::string_view word = OptionWord(input);
    if (word != row.name && FindOption(word) != nullptr) {
      return UnknownOption(verb, word);
    }
    const absl::string_view value =
        row.value == nullptr ? absl::string_view() : optarg;
    if (absl::Status status = row.apply(value, line); !status.ok()) {
      return UsageError(&verb,
                        absl::StrCat("--", row.name, ": ", status.message()));
    }
  }
  for (int i = optind; i < argc; ++i) {
    line.paths.emplace_back(input.argv[static_cast<size_t>(i)]);
  }
  return absl::OkStatus();
}

absl::Status CheckJobs(const VerbRow& verb, const CommandLine& line) {
  const std::string action = line.paths.empty() ? "" : line.paths[0];
  const size_t wanted = action == "list" ? 1 : 2;
  if (action != "list" && action != "wait" && action != "cancel") {
    return UsageError(
        &verb,
        absl::StrCat("'", action, "' is not list, wait JOB or cancel JOB"));
  }
  if (line.paths.size() == wanted) return absl::OkStatus();
  return UsageError(&verb, wanted == 1 ? std::string("jobs list wants no more")
                                       : absl::StrCat("jobs ", action,
                                                      " wants one job, such as "
                                                      "operations/7"));
}

// Checks options that only this machine, or only a server, supports.
absl::Status CheckServer(const VerbRow& verb, const CommandLine& line) {
  if (!line.server.empty()) {
    if (line.direct == DirectMode::kAuto && line.num_lanes == 0) {
      return absl::OkStatus();
    }
    return UsageError(&verb, "--direct and --lanes are the server's to decide");
  }
  if (line.verb == Verb::kJobs) {
    return UsageError(&verb, "jobs wants --server, or TESSERA_SERVER");
  }
  if (line.tls || !line.tls_ca.empty() || !line.tls_cert.empty() ||
      !line.tls_key.empty() || !line.token_file.empty()) {
    return UsageError(&verb,
                      "--tls and its like and --token-file want --server");
  }
  return absl::OkStatus();
}

// Checks a path of "-".
absl::Status CheckDash(const VerbRow& verb, const CommandLine& line) {
  if (!WritesToStandardOutput(line)) {
    return UsageError(&verb,
                      "'-' would be standard input, or output for a directory, "
                      "and a checkpoint is read and written at any place: name "
                      "a file; './-' is the one of that name");
  }
  if (line.paths[0] == "-") {
    return UsageError(&verb,
                      "a checkpoint is read at any place, not from standard "
                      "input: name a file; './-' is the one of that name");
  }
  if (line.to == Format::kDcp || line.mesh.has_value()) {
    return UsageError(&verb, "DCP is a directory, and '-' is one stream");
  }
  if (!line.server.empty()) {
    return UsageError(&verb,
                      "a server does not write to this standard output: "
                      "'-' is without --server");
  }
  if (line.json && !line.plan) {
    return UsageError(&verb,
                      "with '-' standard output is the checkpoint: --json is "
                      "without '-'");
  }
  return absl::OkStatus();
}

absl::Status CheckOperands(const VerbRow& verb, const CommandLine& line) {
  for (const std::string& path : line.paths) {
    if (path.empty()) return UsageError(&verb, "a path is empty");
    if (path == "-") DCP_RETURN_IF_ERROR(CheckDash(verb, line));
  }
  if (line.verb == Verb::kJobs) return CheckJobs(verb, line);
  if (line.paths.size() == verb.num_operands) return absl::OkStatus();
  return UsageError(&verb,
                    absl::StrCat(verb.name, " wants ", verb.operands, ", got ",
                                 FormatPlural(line.paths.size(), "path")));
}

absl::Status CheckMesh(const VerbRow& verb, const CommandLine& line) {
  if (!line.placements.empty() && !line.mesh.has_value()) {
    return UsageError(&verb, "--place wants --mesh");
  }
  if (!line.mesh.has_value()) return absl::OkStatus();
  for (const PlacementRule& rule : line.placements) {
    if (rule.placements.size() == line.mesh->axes.size()) continue;
    return UsageError(
        &verb,
        absl::StrCat("--place '", rule.glob, "=", ToString(rule.placements),
                     "' has ", rule.placements.size(), " placements, the mesh ",
                     ToString(*line.mesh), " has ", line.mesh->axes.size()));
  }
  const std::optional<Format> to =
      line.to.has_value() ? line.to : FormatFromName(line.paths[1]);
  if (line.verb == Verb::kConvert && to.has_value() && *to != Format::kDcp) {
    return UsageError(&verb,
                      absl::StrCat("--mesh is for DCP output, and the output "
                                   "is ",
                                   FormatName(*to)));
  }
  return absl::OkStatus();
}

// Checks what each verb requires in addition to its own options.
absl::Status CheckCombination(const VerbRow& verb, const CommandLine& line) {
  DCP_RETURN_IF_ERROR(CheckOperands(verb, line));
  DCP_RETURN_IF_ERROR(CheckServer(verb, line));
  DCP_RETURN_IF_ERROR(CheckMesh(verb, line));
  if (line.all && line.depth != 0) {
    return UsageError(&verb,
                      "--all lists every tensor, and --depth sums them up: "
                      "give one of the two");
  }
  if (line.verb == Verb::kReshard) {
    if (!line.mesh.has_value()) {
      return UsageError(&verb, "reshard wants --mesh, such as --mesh shard=4");
    }
    if (FormatFromName(line.paths[1]).has_value()) {
      return UsageError(&verb,
                        absl::StrCat("reshard writes a DCP directory; for '",
                                     line.paths[1], "' there is consolidate"));
    }
  }
  if (line.verb == Verb::kConsolidate && !line.to.has_value() &&
      !WritesToStandardOutput(line) &&
      !FormatFromName(line.paths[1]).has_value()) {
    return UsageError(
        &verb, absl::StrCat("the name '", line.paths[1],
                            "' does not say the format: end it in .pt or "
                            ".safetensors, or give --to"));
  }
  return absl::OkStatus();
}

absl::StatusOr<CommandLine> ParseCompletion(
    absl::Span<const std::string> args) {
  const absl::Span<const absl::string_view> shells = CompletionShells();
  if (args.size() != 2 ||
      std::find(shells.begin(), shells.end(), args[1]) == shells.end()) {
    return UsageError(nullptr, absl::StrCat("completion requires a shell: ",
                                            absl::StrJoin(shells, ", ")));
  }
  CommandLine line;
  line.action = CommandLine::Action::kCompletion;
  line.paths.push_back(args[1]);
  return line;
}

// Handles "help", "help VERB", "--help", "--version" and similar words; nullopt
// if the first word is none of them.
absl::StatusOr<std::optional<CommandLine>> ParseWithoutVerb(
    absl::Span<const std::string> args) {
  CommandLine line;
  const std::string& first = args[0];
  if (first == "--version" || first == "-V" || first == "version") {
    line.action = CommandLine::Action::kVersion;
    return line;
  }
  if (first == "--help" || first == "-h" || first == "help") {
    line.action = CommandLine::Action::kHelp;
    if (args.size() == 1) return line;
    const VerbRow* row = FindVerb(args[1]);
    if (row == nullptr) return UnknownVerb(args[1]);
    line.verb = row->verb;
    return line;
  }
  if (first == "man") {
    line.action = CommandLine::Action::kManPage;
    return line;
  }
  if (first == "completion") return ParseCompletion(args);
  if (absl::StartsWith(first, "-")) {
    return UsageError(nullptr, absl::StrCat("'", first,
                                            "' stands where the verb belongs: "
                                            "dcp-convert VERB [OPTION]..."));
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(absl::Span<const std::string> args,
                                             absl::string_view server) {
  if (args.empty()) {
    return UsageError(nullptr, "no verb given, such as inspect or convert");
  }
  DCP_ASSIGN_OR_RETURN(const std::optional<CommandLine> general,
                       ParseWithoutVerb(args));
  if (general.has_value()) return *general;
  const VerbRow* verb = FindVerb(args[0]);
  if (verb == nullptr) return UnknownVerb(args[0]);
  CommandLine line;
  line.verb = verb->verb;
  DCP_RETURN_IF_ERROR(ParseOptions(*verb, args.subspan(1), line));
  if (line.action == CommandLine::Action::kHelp) return line;
  if (line.server.empty()) line.server = std::string(server);
  DCP_RETURN_IF_ERROR(CheckCombination(*verb, line));
  return line;
}

bool WritesToStandardOutput(const CommandLine& line) {
  return (line.verb == Verb::kConvert || line.verb == Verb::kConsolidate ||
          line.verb == Verb::kDcpToTorch) &&
         line.paths.size() == 2 && line.paths[1] == "-";
}

std::optional<Format> FormatFromName(absl::string_view path) {
  if (absl::EndsWith(path, ".safetensors")) return Format::kSafetensors;
  for (absl::string_view suffix : {".pt", ".pth", ".bin", ".ckpt"}) {
    if (absl::EndsWith(path, suffix)) return Format::kTorch;
  }
  return std::nullopt;
}

}  // namespace dcp::tools
