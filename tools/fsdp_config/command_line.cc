#include "tools/fsdp_config/command_line.h"

#include <array>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "dcp/base/nearest_word.h"
#include "dcp/base/status.h"

namespace fsdp::tools {
namespace {

struct VerbRow {
  Verb verb;
  const char* name;
  const char* summary;
  const char* description;  // lines of at most 78 columns
  const char* examples;     // lines of shell
};

constexpr std::array<VerbRow, 5> kVerbs = {{
    {Verb::kCheck, "check", "say everything that is wrong with a config",
     "Reads a training config of accelerate (YAML or JSON), transformers\n"
     "(JSON), Composer (YAML or a Python dict), TorchTitan (TOML, or the JSON\n"
     "that it prints) or axolotl (YAML) and prints\n"
     "what is wrong with it, all at once: the line, the key, what it says and\n"
     "what it may say, and the nearest key to one that is not known. Then "
     "what\n"
     "means something else here, and what has no effect. Ends with 1 if\n"
     "something is wrong.\n",
     "fsdp-config check accelerate.yaml\n"
     "fsdp-config check --strict configs/*.yaml\n"
     "fsdp-config check fsdp.json --json | jq '.findings[].text'\n"},
    {Verb::kExplain, "explain", "say what a config will do",
     "Prints the mesh of ranks, the groups that are gathered and reduced\n"
     "together, ZeRO's stage, and the memory of one rank: parameters,\n"
     "gradients, optimizer state, what is gathered at one time, and a bound "
     "of\n"
     "the activations. Groups and memory want a model: any checkpoint of it,\n"
     "of which only the index is read.\n",
     "fsdp-config explain llama3_8b.toml --world-size 64\n"
     "fsdp-config explain accelerate.yaml --world-size 16 \\\n"
     "  --model model.safetensors --local-batch-size 2 --seq-len 8192\n"},
    {Verb::kToFsdp2, "to-fsdp2", "turn a config of FSDP1 into one of FSDP2",
     "Writes the same file for FSDP2: options are renamed, mapped or dropped,\n"
     "and each is named with the reason. Comments, order and everything that\n"
     "is about other things stay as they were. A file for FSDP2 stays as it\n"
     "is. Goes to standard output, to --output-file, or with --overwrite "
     "alone\n"
     "into the file itself.\n",
     "fsdp-config to-fsdp2 accelerate.yaml | diff accelerate.yaml -\n"
     "fsdp-config to-fsdp2 accelerate.yaml --output-file accelerate2.yaml\n"
     "fsdp-config to-fsdp2 accelerate.yaml --overwrite\n"},
    {Verb::kConvert, "convert", "write a config in another program's words",
     "Reads a config of any of them and writes a whole one of another,\n"
     "for FSDP2. What the other has no words for is named; the rest means the\n"
     "same.\n",
     "fsdp-config convert accelerate.yaml --to torchtitan\n"
     "fsdp-config convert llama3.toml --to accelerate \\\n"
     "  --output-file accelerate.yaml\n"},
    {Verb::kInit, "init", "ask what a config shall say, and write it",
     "Asks as `accelerate config` does, and writes a config for the program "
     "of\n"
     "--to, which it asks for as well. Questions go to standard error, the\n"
     "config to standard output or to --output-file.\n",
     "fsdp-config init --output-file accelerate.yaml\n"
     "fsdp-config init --to torchtitan >llama3.toml\n"},
}};

constexpr uint32_t Bit(Verb verb) {
  return uint32_t{1} << static_cast<uint32_t>(verb);
}
constexpr uint32_t kAll = Bit(Verb::kCheck) | Bit(Verb::kExplain) |
                          Bit(Verb::kToFsdp2) | Bit(Verb::kConvert);
constexpr uint32_t kWrites =
    Bit(Verb::kToFsdp2) | Bit(Verb::kConvert) | Bit(Verb::kInit);
constexpr uint32_t kExplains = Bit(Verb::kExplain);

struct OptionRow {
  const char* name;   // without the dashes
  const char* value;  // what stands for the value in help; null: a flag
  uint32_t verbs;
  const char* help;  // lines of at most 52 columns
  absl::Status (*apply)(absl::string_view value, CommandLine& line);
};

template <auto Member>
absl::Status SetCount(absl::string_view value, CommandLine& line) {
  int64_t number = 0;
  if (!absl::SimpleAtoi(value, &number) || number < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", value, "' is no number from 1"));
  }
  line.*Member = number;
  return absl::OkStatus();
}

template <auto Member>
absl::Status SetText(absl::string_view value, CommandLine& line) {
  if (value.empty()) return absl::InvalidArgumentError("the name is empty");
  line.*Member = std::string(value);
  return absl::OkStatus();
}

template <auto Member>
absl::Status SetFlag(absl::string_view, CommandLine& line) {
  line.*Member = true;
  return absl::OkStatus();
}

absl::Status AddFile(absl::string_view value, CommandLine& line) {
  if (value.empty()) return absl::InvalidArgumentError("the name is empty");
  line.files.emplace_back(value);
  line.file = line.files.front();
  return absl::OkStatus();
}

absl::Status SetTo(absl::string_view value, CommandLine& line) {
  line.to = dialect_named(value);
  if (line.to == Dialect::kAxolotl) {
    return absl::InvalidArgumentError(
        "axolotl's files are read, and not written");
  }
  if (line.to.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", value,
                   "' is not accelerate, transformers, composer or "
                   "torchtitan"));
}

constexpr std::array<OptionRow, 13> kOptions = {{
    {"to", "DIALECT", Bit(Verb::kConvert) | Bit(Verb::kInit),
     "accelerate, transformers, composer or torchtitan", SetTo},
    {"output-file", "FILE", kWrites,
     "where to write; refused where a file is already",
     SetText<&CommandLine::output_file>},
    {"overwrite", nullptr, kWrites, "replace the file that is there",
     SetFlag<&CommandLine::overwrite>},
    {"config-file", "FILE", kAll, "the FILE, as accelerate spells it", AddFile},
    {"strict", nullptr, kAll,
     "end with 1 for changes and what has no effect too",
     SetFlag<&CommandLine::strict>},
    {"world-size", "N", kExplains | Bit(Verb::kCheck),
     "ranks in all; otherwise those the config was\nwritten for (explain: or "
     "8)",
     SetCount<&CommandLine::world_size>},
    {"local-world-size", "N", kExplains | Bit(Verb::kCheck),
     "ranks of one machine; otherwise at most 8",
     SetCount<&CommandLine::local_world_size>},
    {"model", "PATH", kExplains,
     "a checkpoint of the model: safetensors, .pt, DCP",
     SetText<&CommandLine::model>},
    {"local-batch-size", "N", kExplains,
     "sequences of one rank; otherwise the config's, or 1",
     SetCount<&CommandLine::local_batch_size>},
    {"seq-len", "N", kExplains,
     "tokens of a sequence; otherwise the config's, or 2048",
     SetCount<&CommandLine::seq_len>},
    {"environment", nullptr, kAll,
     "FSDP_* and ACCELERATE_* variables win over the file",
     SetFlag<&CommandLine::environment>},
    {"json", nullptr, kAll, "print one JSON object for each file, not text",
     SetFlag<&CommandLine::json>},
    {"help", nullptr, kAll | Bit(Verb::kInit), "print this",
     [](absl::string_view, CommandLine& line) {
       line.action = CommandLine::Action::kHelp;
       return absl::OkStatus();
     }},
}};

const VerbRow& RowOf(Verb verb) { return kVerbs[static_cast<size_t>(verb)]; }

absl::Status UsageError(const VerbRow* verb, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(
      message, " (try fsdp-config ",
      verb == nullptr ? "" : absl::StrCat(verb->name, " "), "--help)"));
}

std::string DidYouMean(absl::string_view nearest) {
  return nearest.empty() ? "" : absl::StrCat(": did you mean '", nearest, "'?");
}

absl::StatusOr<const VerbRow*> FindVerb(absl::string_view word) {
  std::vector<absl::string_view> names;
  for (const VerbRow& row : kVerbs) {
    if (word == row.name) return &row;
    names.emplace_back(row.name);
  }
  const std::string hint = DidYouMean(dcp::NearestWord(word, names));
  return UsageError(
      nullptr,
      absl::StrCat("unknown verb '", word, "'",
                   hint.empty() ? absl::StrCat(": there are ",
                                               absl::StrJoin(names, ", "))
                                : hint));
}

absl::StatusOr<const OptionRow*> FindOption(const VerbRow& verb,
                                            absl::string_view name) {
  std::vector<absl::string_view> names;
  // accelerate spells them with underscores.
  const std::string dashed = absl::StrReplaceAll(name, {{"_", "-"}});
  for (const OptionRow& row : kOptions) {
    if (!(row.verbs & Bit(verb.verb))) continue;
    if (dashed == row.name) return &row;
    names.emplace_back(row.name);
  }
  const absl::string_view nearest = dcp::NearestWord(name, names);
  return UsageError(
      &verb,
      absl::StrCat(
          "unknown option '--", name, "'",
          nearest.empty() ? "" : DidYouMean(absl::StrCat("--", nearest))));
}

// Takes the option at `args[index]` and its value, if that is a separate word.
absl::Status ParseOption(const VerbRow& verb,
                         absl::Span<const std::string> args, size_t& index,
                         CommandLine& line) {
  const absl::string_view word = absl::StripPrefix(args[index], "--");
  const size_t equals = word.find('=');
  const absl::string_view name = word.substr(0, equals);
  DCP_ASSIGN_OR_RETURN(const OptionRow* row, FindOption(verb, name));
  absl::string_view value;
  if (equals != absl::string_view::npos) {
    value = word.substr(equals + 1);
    if (row->value == nullptr) {
      return UsageError(&verb, absl::StrCat("option --", name,
                                            " takes no value: '", value, "'"));
    }
  } else if (row->value != nullptr) {
    if (++index == args.size()) {
      return UsageError(&verb, absl::StrCat("option --", name,
                                            " wants a value: ", row->value));
    }
    value = args[index];
  }
  const absl::Status applied = row->apply(value, line);
  if (applied.ok()) return applied;
  return UsageError(&verb, absl::StrCat("--", name, ": ", applied.message()));
}

absl::Status CheckWhole(const VerbRow& verb, const CommandLine& line) {
  if (verb.verb == Verb::kInit) {
    if (!line.files.empty()) {
      return UsageError(&verb, absl::StrCat("init reads no FILE: '", line.file,
                                            "'; --output-file names one"));
    }
    if (line.overwrite && line.output_file.empty()) {
      return UsageError(&verb, "--overwrite wants an --output-file");
    }
    return absl::OkStatus();
  }
  if (line.file.empty()) return UsageError(&verb, "the FILE is missing");
  if (line.files.size() > 1 && verb.verb != Verb::kCheck) {
    return UsageError(&verb, absl::StrCat("one FILE is enough: '",
                                          line.files[1], "' is a second"));
  }
  if (line.file == "-" && line.overwrite && line.output_file.empty()) {
    return UsageError(&verb,
                      "standard input cannot be replaced: --overwrite wants an "
                      "--output-file");
  }
  if (verb.verb == Verb::kConvert && !line.to.has_value()) {
    return UsageError(&verb, "--to DIALECT is missing");
  }
  if (verb.verb == Verb::kConvert && line.overwrite &&
      line.output_file.empty()) {
    return UsageError(&verb, "--overwrite wants an --output-file");
  }
  return absl::OkStatus();
}

constexpr char kExitCodes[] =
    "Exit codes:\n"
    "  0  done\n"
    "  1  something is wrong with the config\n"
    "  2  the command line makes no sense\n"
    "  3  a file is unreadable\n"
    "  4  the output could not be written\n"
    "  5  refused: there is a file already\n";

void AppendOption(const OptionRow& row, std::string& text) {
  constexpr int kHelpColumn = 25;
  std::string head = absl::StrCat("  --", row.name);
  if (row.value != nullptr) absl::StrAppend(&head, " ", row.value);
  for (absl::string_view line : absl::StrSplit(row.help, '\n')) {
    absl::StrAppendFormat(&text, "%-*s%s\n", kHelpColumn, head, line);
    head.clear();
  }
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(
    absl::Span<const std::string> args) {
  CommandLine line;
  if (args.empty()) return UsageError(nullptr, "the VERB is missing");
  if (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    line.action = CommandLine::Action::kHelp;
    return line;
  }
  if (args[0] == "--version") {
    line.action = CommandLine::Action::kVersion;
    return line;
  }
  DCP_ASSIGN_OR_RETURN(const VerbRow* verb, FindVerb(args[0]));
  line.verb = verb->verb;
  bool options_end = false;
  for (size_t i = 1; i < args.size(); ++i) {
    if (!options_end && args[i] == "--") {
      options_end = true;
    } else if (!options_end && args[i] == "-h") {
      line.action = CommandLine::Action::kHelp;
    } else if (!options_end && absl::StartsWith(args[i], "--")) {
      DCP_RETURN_IF_ERROR(ParseOption(*verb, args, i, line));
    } else {
      const absl::Status added = AddFile(args[i], line);
      if (!added.ok()) return UsageError(verb, added.message());
    }
  }
  if (line.action == CommandLine::Action::kRun) {
    DCP_RETURN_IF_ERROR(CheckWhole(*verb, line));
  }
  return line;
}

std::string GeneralHelp() {
  std::string text =
      "fsdp-config: reads the training configs of accelerate, transformers,\n"
      "Composer, TorchTitan and axolotl; checks, explains and converts "
      "them.\n\n"
      "Usage: fsdp-config VERB [OPTION]... FILE\n\n"
      "FILE may be - for standard input; check takes several.\n\nVerbs:\n";
  for (const VerbRow& row : kVerbs) {
    absl::StrAppendFormat(&text, "  %-10s%s\n", row.name, row.summary);
  }
  absl::StrAppend(&text,
                  "\nWhich program a file is for follows from its keys.\n"
                  "'fsdp-config VERB --help' explains a verb, with examples;\n"
                  "'fsdp-config --version' prints the version.\n\n",
                  kExitCodes);
  return text;
}

std::string VerbHelp(Verb verb) {
  const VerbRow& row = RowOf(verb);
  std::string text =
      absl::StrCat("Usage: fsdp-config ", row.name, " [OPTION]...",
                   verb == Verb::kInit ? "" : " FILE", "\n\n", row.description,
                   "\nOptions:\n");
  for (const OptionRow& option : kOptions) {
    if (option.verbs & Bit(verb)) AppendOption(option, text);
  }
  absl::StrAppend(&text, "\nExamples:\n");
  for (absl::string_view line : absl::StrSplit(row.examples, '\n')) {
    if (!line.empty()) absl::StrAppend(&text, "  ", line, "\n");
  }
  absl::StrAppend(&text, "\n", kExitCodes);
  return text;
}

}  // namespace fsdp::tools
