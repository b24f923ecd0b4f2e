// SPDX-License-Identifier: Apache-2.0

#include "server/options/command_line.h"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "dcp/base/nearest_word.h"
#include "dcp/base/status.h"
#include "dcp/options/option_help.h"
#include "dcp/options/option_words.h"
#include "dcp/options/setting_lines.h"
#include "server/memory/memory_shares.h"
#include "server/options/option_table.h"
#include "server/process/option_value.h"
#include "server/process/text_file.h"

namespace dcp::server {
namespace {

// The column where the explanations begin.
constexpr int kHelpColumn = 27;

// Options that exist on the command line only, and not in the table.
struct CommandLineOption {
  absl::string_view key;
  absl::string_view value;  // as in OptionRow
  absl::string_view help;
};

constexpr absl::string_view kConfig = "config";
constexpr absl::string_view kCheckConfig = "check-config";
constexpr absl::string_view kVersion = "version";
constexpr absl::string_view kLicenses = "licenses";
constexpr absl::string_view kHelp = "help";
constexpr CommandLineOption kCommandLineOptions[] = {
    {kConfig, "FILE",
     "Options as lines of `key = value`; # begins a\n"
     "comment. The command line overrides them."},
    {kCheckConfig, "",
     "Report all mistakes in options, files and folders,\n"
     "and exit without serving: 0 if there are none."},
    {kVersion, "", "Print the version."},
    {kLicenses, "",
     "Print the licences of this program and of the\n"
     "libraries in it."},
    {kHelp, "", "Print this text."},
};

std::string UnknownKey(absl::string_view key, bool on_command_line) {
  std::vector<absl::string_view> keys;
  for (const OptionRow& row : AllOptions()) keys.push_back(row.key);
  if (on_command_line) {
    for (const CommandLineOption& option : kCommandLineOptions) {
      keys.push_back(option.key);
    }
  }
  const absl::string_view nearest = NearestWord(key, keys);
  return nearest.empty()
             ? "there is no such option; see --help"
             : absl::StrCat("there is no such option; did you mean ", nearest,
                            "?");
}

// A "key = value" from the command line or the file.
struct Setting {
  std::string place;  // "--listen" or "FILE:3: listen"
  std::string key;
  std::string value;
  bool has_value;
};

// Collects all problems, to report them together.
class Parser {
 public:
  // Applies the settings of one source, which may set each key once.
  void Apply(const std::vector<Setting>& settings, bool on_command_line) {
    std::set<std::string> seen;
    for (const Setting& setting : settings) {
      const OptionRow* row = FindOption(setting.key);
      if (row == nullptr) {
        Complain(setting, UnknownKey(setting.key, on_command_line));
        continue;
      }
      if (!seen.insert(setting.key).second && !row->repeatable) {
        Complain(setting, "is given twice");
        continue;
      }
      if (!setting.has_value && !row->value.empty()) {
        Complain(setting, absl::StrCat("requires a value: ", row->value));
        continue;
      }
      const absl::Status status =
          row->apply(setting.has_value ? setting.value : "true", options);
      if (!status.ok()) Complain(setting, status.message());
    }
  }

  void Complain(const Setting& setting, absl::string_view what) {
    problems.push_back(absl::StrCat(setting.place, ": ", what));
    wrong_keys.insert(setting.key);
    if (FindOption(setting.key) == nullptr) has_unknown_key = true;
  }

  ServerOptions options;
  std::vector<std::string> problems;
  std::set<std::string> wrong_keys;
  bool has_unknown_key = false;
};

absl::StatusOr<std::vector<Setting>> ReadConfig(const std::string& path) {
  DCP_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  std::vector<Setting> settings;
  for (SettingLine& line : SplitSettingLines(text, CommentStyle::kWholeLines)) {
    settings.push_back(
        {.place = absl::StrCat(path, ":", line.number, ": ", line.key),
         .key = std::move(line.key),
         .value = std::move(line.value),
         .has_value = line.has_value});
  }
  return settings;
}

// Accepts "--key=value", "--key value" and "--flag".
std::vector<Setting> ReadArguments(const std::vector<std::string>& arguments,
                                   std::vector<std::string>& problems) {
  std::vector<OptionSpec> specs;
  for (const CommandLineOption& option : kCommandLineOptions) {
    specs.push_back({option.key, !option.value.empty()});
  }
  for (const OptionRow& row : AllOptions()) {
    specs.push_back({row.key, !row.value.empty()});
  }
  std::vector<Setting> settings;
  for (OptionWord& word : SplitOptionWords(
           arguments, specs, {.style = OptionSyntax::Style::kSettings})) {
    if (word.kind == OptionWord::Kind::kShort ||
        word.kind == OptionWord::Kind::kOperand) {
      problems.push_back(
          absl::StrCat(word.text, ": is not an option; options begin with --"));
      continue;
    }
    settings.push_back({.place = absl::StrCat("--", word.name),
                        .key = std::move(word.name),
                        .value = std::move(word.value),
                        .has_value = word.has_value});
  }
  return settings;
}

// Reports combinations that are not allowed although each option is valid.
// Leaves out options with other problems. If a key is unknown, does not report
// a missing option, because the key may be a misspelling.
void CheckCombinations(Parser& parser) {
  const ServerOptions& options = parser.options;
  const auto compare = [&](std::initializer_list<const char*> keys, bool wrong,
                           const auto&... parts) {
    const bool are_right = std::none_of(
        keys.begin(), keys.end(),
        [&](const char* key) { return parser.wrong_keys.contains(key); });
    if (wrong && are_right) parser.problems.push_back(absl::StrCat(parts...));
  };
  const auto require = [&](const char* key, bool missing,
                           absl::string_view why) {
    compare({key}, missing && !parser.has_unknown_key, key, ": is missing; ",
            why);
  };
  require("root", options.roots.empty(),
          "--root=DIR names a folder of checkpoints");
  require("state-dir", options.state_dir.empty(),
          "it names the folder in which jobs are remembered");
  require("tls-cert", options.tls_cert.empty() && !options.tls_key.empty(),
          "TLS requires both");
  require("tls-key", options.tls_key.empty() && !options.tls_cert.empty(),
          "TLS requires both");
  compare({"tls-client-ca", "tls-cert"},
          !options.tls_client_ca.empty() && options.tls_cert.empty(),
          "tls-client-ca: requires tls-cert and tls-key");
  compare({"listen", "tls-cert", "allow-insecure"},
          options.tls_cert.empty() && !options.allow_insecure &&
              !IsLoopback(options.listen) && !parser.has_unknown_key,
          "listen: ", options.listen,
          " can be reached by other machines, which requires tls-cert and "
          "tls-key, or allow-insecure");
  compare({"max-streams-per-client", "max-streams"},
          options.max_streams_per_client > options.max_streams,
          "max-streams-per-client: ", options.max_streams_per_client,
          " exceeds max-streams, ", options.max_streams);
  compare({"client-memory", "max-memory"},
          options.client_memory_bytes > options.max_memory_bytes,
          "client-memory: ", FormatBytes(options.client_memory_bytes),
          " exceeds max-memory, ", FormatBytes(options.max_memory_bytes));
  const uint64_t jobs_bytes =
      DivideMemory(options.max_memory_bytes, options.num_readers).jobs_bytes;
  compare({"job-memory", "max-memory", "num-readers"},
          options.job_memory_bytes > jobs_bytes,
          "job-memory: ", FormatBytes(options.job_memory_bytes),
          " exceeds the ", FormatBytes(jobs_bytes), " that max-memory, ",
          FormatBytes(options.max_memory_bytes), ", leaves to jobs");
}

// The head of an option's lines in help: "--listen=ADDRESS".
std::string HelpHead(absl::string_view key, absl::string_view value) {
  return absl::StrCat("--", key, value.empty() ? "" : "=", value);
}

}  // namespace

absl::StatusOr<ServerOptions> ParseServerOptions(
    const std::vector<std::string>& arguments) {
  Parser parser;
  std::vector<Setting> flags = ReadArguments(arguments, parser.problems);
  std::vector<Setting> rest;
  for (Setting& flag : flags) {
    if (flag.key == kHelp) {
      parser.options.help = true;
    } else if (flag.key == kVersion) {
      parser.options.version = true;
    } else if (flag.key == kLicenses) {
      parser.options.licenses = true;
    } else if (flag.key == kCheckConfig) {
      parser.options.check_config = true;
    } else if (flag.key != kConfig) {
      rest.push_back(std::move(flag));
    } else if (!flag.has_value) {
      parser.Complain(flag, "requires a value: FILE");
    } else if (absl::StatusOr<std::vector<Setting>> settings =
                   ReadConfig(flag.value);
               settings.ok()) {
      parser.Apply(*settings, false);
    } else {
      parser.Complain(flag, settings.status().message());
    }
  }
  if (parser.options.help || parser.options.version ||
      parser.options.licenses) {
    return parser.options;
  }
  // Roots on the command line replace those in the file.
  if (std::any_of(rest.begin(), rest.end(), [](const Setting& setting) {
        return setting.key == "root" || setting.key == "read-only-root";
      })) {
    parser.options.roots.clear();
  }
  parser.Apply(rest, true);
  CheckCombinations(parser);
  if (parser.problems.empty()) return parser.options;
  return absl::InvalidArgumentError(absl::StrJoin(parser.problems, "\n"));
}

std::string ServerHelp() {
  std::string text =
      "Usage: dcp-server [--config=FILE] [--OPTION=VALUE]...\n"
      "\n"
      "Reshards, converts and serves checkpoints over gRPC. To try it:\n"
      "\n"
      "  dcp-server --root=/data/checkpoints --state-dir=/var/lib/dcp-server\n"
      "  dcp-convert inspect --server=127.0.0.1:7420 "
      "/data/checkpoints/step-10\n"
      "\n"
      "For other machines, with TLS and tokens:\n"
      "\n"
      "  dcp-server --listen=[::]:7420 --tls-cert=/etc/dcp-server/cert.pem\n"
      "      --tls-key=/etc/dcp-server/key.pem\n"
      "      --tokens-file=/etc/dcp-server/tokens\n"
      "      --root=/data/checkpoints --state-dir=/var/lib/dcp-server\n"
      "\n"
      "SIGTERM and SIGINT drain it: it accepts no new calls; running calls "
      "may\n"
      "end, and so may jobs that cannot continue at the next start. A second\n"
      "signal stops calls and jobs at once. SIGHUP makes it read tokens and\n"
      "certificates again.\n"
      "\n"
      "Options that only the command line takes:\n";
  for (const CommandLineOption& option : kCommandLineOptions) {
    AppendOptionHelp(HelpHead(option.key, option.value), option.help,
                     kHelpColumn, text);
  }
  text += "\nOptions of the command line and the file:\n";
  const ServerOptions defaults;
  for (const OptionRow& row : AllOptions()) {
    const std::string value = row.show == nullptr ? "" : row.show(defaults);
    AppendOptionHelp(
        HelpHead(row.key, row.value),
        absl::StrCat(row.help,
                     value.empty() ? "" : absl::StrCat("\nDefault: ", value)),
        kHelpColumn, text);
  }
  text +=
      "\nSizes are written as 512MiB or 2GiB, times as 30s, 10min, 2h or "
      "7d.\n"
      "Exit codes: 0 stopped as asked, 1 could not serve, 2 wrong options, 3\n"
      "stopped as asked, but a file system held threads of the server.\n";
  return text;
}

}  // namespace dcp::server
