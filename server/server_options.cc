#include "server/server_options.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "dcp/base/limits.h"
#include "dcp/base/nearest_word.h"
#include "dcp/base/status.h"
#include "server/memory/memory_shares.h"
#include "server/process/option_value.h"
#include "server/process/text_file.h"

namespace dcp::server {
namespace {

// Each reader is a thread; more would not make a disk faster.
constexpr int64_t kMaxReaders = 256;
// Each running job has its own lanes, with a thread each.
constexpr int64_t kMaxRunningJobs = 64;
constexpr int64_t kMaxJobs = 100'000;
constexpr int64_t kMaxStreams = 50'000;
constexpr int64_t kMaxRequestsPerSecond = 1'000'000;
// A verification takes this much, and a stream a quarter of it.
constexpr uint64_t kMinClientBytes = uint64_t{64} << 20;
// Each takes a descriptor and some 50 KiB in gRPC.
constexpr int64_t kMaxConnections = 100'000;
// A smaller limit would not allow requests with the parts of a large model,
// which take some 100 bytes each; with a larger one a single client's request
// is a burden.
constexpr uint64_t kMinRequestBytes = uint64_t{64} << 10;
constexpr uint64_t kMaxRequestBytes = uint64_t{64} << 20;

using Apply = absl::Status (*)(absl::string_view value, ServerOptions& options);

struct OptionRow {
  absl::string_view key;
  absl::string_view value;  // placeholder for the value in help; empty: a flag
  bool repeatable;
  absl::string_view help;  // lines of at most 52 columns
  Apply apply;
};

template <typename T>
absl::Status Store(absl::StatusOr<T> value, T& field) {
  if (value.ok()) field = *std::move(value);
  return value.status();
}

absl::Status StorePath(absl::string_view value, std::string& field) {
  if (!absl::StartsWith(value, "/")) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", value, "' is not an absolute path"));
  }
  field = std::string(value);
  return absl::OkStatus();
}

absl::Status AddRoot(absl::string_view value, bool writable,
                     ServerOptions& options) {
  Root root{.writable = writable};
  DCP_RETURN_IF_ERROR(StorePath(value, root.path));
  options.roots.push_back(std::move(root));
  return absl::OkStatus();
}

absl::Status StoreBytes(absl::string_view value, uint64_t min, uint64_t max,
                        uint64_t& field) {
  DCP_ASSIGN_OR_RETURN(const uint64_t bytes, ParseBytes(value));
  if (bytes < min || bytes > max) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", value, "' is not a size from ", FormatBytes(min),
                     " to ", FormatBytes(max)));
  }
  field = bytes;
  return absl::OkStatus();
}

absl::Status ApplyLogLevel(absl::string_view value, ServerOptions& options) {
  if (value == "info") {
    options.log.lowest = LogSeverity::kInfo;
  } else if (value == "warning") {
    options.log.lowest = LogSeverity::kWarning;
  } else if (value == "error") {
    options.log.lowest = LogSeverity::kError;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("'", value, "' is not info, warning or error"));
  }
  return absl::OkStatus();
}

absl::Status ApplyLogFormat(absl::string_view value, ServerOptions& options) {
  if (value != "text" && value != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("'", value, "' is not text or json"));
  }
  options.log.json = value == "json";
  return absl::OkStatus();
}

// No machine has more memory; a larger value has the wrong unit.
constexpr uint64_t kMostMemoryBytes = uint64_t{64} << 40;

constexpr OptionRow kRows[] = {
    {"listen", "ADDRESS", false,
     "Where it serves: 127.0.0.1:7420, [::]:7420 or\n"
     "unix:/run/dcp-server.sock. Port 0: any free one.\n"
     "Other than this machine needs TLS.",
     [](absl::string_view value, ServerOptions& options) {
       return Store(ParseAddress(value, true), options.listen);
     }},
    {"allow-insecure", "", false,
     "Serve other machines without TLS: whoever is on\n"
     "the network can read tokens and checkpoints.",
     [](absl::string_view value, ServerOptions& options) {
       return Store(ParseBool(value), options.allow_insecure);
     }},
    {"root", "DIR", true,
     "Checkpoints below it may be read and written. At\n"
     "least one root is needed; may be repeated.",
     [](absl::string_view value, ServerOptions& options) {
       return AddRoot(value, true, options);
     }},
    {"read-only-root", "DIR", true, "Checkpoints below it may only be read.",
     [](absl::string_view value, ServerOptions& options) {
       return AddRoot(value, false, options);
     }},
    {"state-dir", "DIR", false,
     "Where jobs are remembered; of this server alone,\n"
     "and not below a root. Needed.",
     [](absl::string_view value, ServerOptions& options) {
       return StorePath(value, options.state_dir);
     }},
    {"tls-cert", "FILE", false,
     "Certificate chain, PEM. TLS wants this and tls-key.",
     [](absl::string_view value, ServerOptions& options) {
       return StorePath(value, options.tls_cert);
     }},
    {"tls-key", "FILE", false, "Its private key, PEM.",
     [](absl::string_view value, ServerOptions& options) {
       return StorePath(value, options.tls_key);
     }},
    {"tls-client-ca", "FILE", false,
     "Clients must show a certificate of this authority\n(mutual TLS).",
     [](absl::string_view value, ServerOptions& options) {
       return StorePath(value, options.tls_client_ca);
     }},
    {"tokens-file", "FILE", false,
     "Clients must show a token of this file. A line each:\n"
     "NAME SHA256 [admin] [read=DIR]... [write=DIR]...\n"
     "Make SHA256 with: printf %s \"$TOKEN\" | sha256sum",
     [](absl::string_view value, ServerOptions& options) {
       return StorePath(value, options.tokens_file);
     }},
    {"max-memory", "SIZE", false,
     "For payload, of all jobs and streams together.",
     [](absl::string_view value, ServerOptions& options) {
       return StoreBytes(value, kMinMemoryBytes, kMostMemoryBytes,
                         options.max_memory_bytes);
     }},
    {"job-memory", "SIZE", false,
     "Of a job that does not ask for another; less where\n"
     "max-memory leaves less to jobs.",
     [](absl::string_view value, ServerOptions& options) {
       return StoreBytes(value, kMinMemoryBytes, kMostMemoryBytes,
                         options.job_memory_bytes);
     }},
    {"max-running-jobs", "N", false, "At the same time.",
     [](absl::string_view value, ServerOptions& options) {
       return Store(ParseCount(value, 1, kMaxRunningJobs),
                    options.max_running_jobs);
     }},
    {"max-queued-jobs", "N", false, "That wait for their turn.",
     [](absl::string_view value, ServerOptions& options) {
       return Store(ParseCount(value, 1, kMaxJobs), options.max_queued_jobs);
     }},
    {"max-jobs-per-client", "N", false, "Queued and running, of one client.",
     [](absl::string_view value, ServerOptions& options) {
       return Store(ParseCount(value, 1, kMaxJobs),
                    options.max_jobs_per_client);
     }},
    {"max-streams", "N", false, "Calls that read a checkpoint, at a time.",
     [](absl::string_view value, ServerOptions& options) {
       return Store(ParseCount(value, 1, kMaxStreams), options.max_streams);
     }},
    {"max-streams-per-client", "N", false,
     "Of them, of one client: a name in tokens-file or,\n"
     "without it, an address.\n"
     "Default: three quarters of max-streams",
     [](absl::string_view value, ServerOptions& options) {
       return Store(ParseCount(value, 1, kMaxStreams),
                    options.max_streams_per_client);
     }},
    {"client-memory", "SIZE", false,
     "Of max-memory, for the calls of one client.\n"
     "Default: half of max-memory",
     [](absl::string_view value, ServerOptions& options) {
       return StoreBytes(value, kMinClientBytes, kMostMemoryBytes,
                         options.client_memory_bytes);
     }},
    {"max-requests-per-second", "N", false,
     "Calls of one client, of any kind; those of ten\n"
     "seconds may come at once.",
     [](absl::string_view value, ServerOptions& options) {
       return Store(ParseCount(value, 1, kMaxRequestsPerSecond),
                    options.max_requests_per_second);
     }},
    {"max-connections", "N", false, "At a time; further ones are closed.",
     [](absl::string_view value, ServerOptions& options) {
       return Store(ParseCount(value, 1, kMaxConnections),
                    options.max_connections);
     }},
    {"max-connections-per-address", "N", false,
     "Of one IPv4 address or one /64 of IPv6.",
     [](absl::string_view value, ServerOptions& options) {
       return Store(ParseCount(value, 1, kMaxConnections),
                    options.max_connections_per_address);
     }},
    {"num-readers", "N", false, "Threads that read for streams.",
     [](absl::string_view value, ServerOptions& options) {
       return Store(ParseCount(value, 1, kMaxReaders), options.num_readers);
     }},
    {"max-request", "SIZE", false, "Of a request.",
     [](absl::string_view value, ServerOptions& options) {
       return StoreBytes(value, kMinRequestBytes, kMaxRequestBytes,
                         options.max_request_bytes);
     }},
    {"keep-jobs", "TIME", false, "How long jobs that ended are remembered.",
     [](absl::string_view value, ServerOptions& options) {
       return Store(ParseTime(value), options.keep_jobs);
     }},
    {"max-ended-jobs", "N", false, "That are remembered.",
     [](absl::string_view value, ServerOptions& options) {
       return Store(ParseCount(value, 1, kMaxJobs), options.max_ended_jobs);
     }},
    {"disk-timeout", "TIME", false,
     "For the file system of a root to open a checkpoint\n"
     "or to give the next bytes of a stream; calls that\n"
     "wait longer for it are UNAVAILABLE.",
     [](absl::string_view value, ServerOptions& options) {
       return Store(ParseTime(value), options.disk_timeout);
     }},
    {"drain", "TIME", false,
     "For calls and jobs to end after SIGTERM; jobs that\n"
     "do not go on at the next start.",
     [](absl::string_view value, ServerOptions& options) {
       return Store(ParseTime(value), options.drain);
     }},
    {"metrics-listen", "ADDRESS", false,
     "Prometheus' metrics, at http://ADDRESS/metrics.",
     [](absl::string_view value, ServerOptions& options) {
       return Store(ParseAddress(value, false), options.metrics_listen);
     }},
    {"log-level", "LEVEL", false,
     "What is logged at least: info, warning or error.", &ApplyLogLevel},
    {"log-format", "FORMAT", false, "Lines of text, or of json for programs.",
     &ApplyLogFormat},
};

// Only accepted on the command line.
constexpr absl::string_view kConfig = "config";
constexpr absl::string_view kCheckConfig = "check-config";
constexpr absl::string_view kVersion = "version";
constexpr absl::string_view kHelp = "help";

const OptionRow* FindRow(absl::string_view key) {
  for (const OptionRow& row : kRows) {
    if (row.key == key) return &row;
  }
  return nullptr;
}

std::string UnknownKey(absl::string_view key, bool on_command_line) {
  std::vector<absl::string_view> keys;
  for (const OptionRow& row : kRows) keys.push_back(row.key);
  if (on_command_line) {
    keys.insert(keys.end(), {kConfig, kCheckConfig, kVersion, kHelp});
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
      const OptionRow* row = FindRow(setting.key);
      if (row == nullptr) {
        Complain(setting, UnknownKey(setting.key, on_command_line));
        continue;
      }
      if (!seen.insert(setting.key).second && !row->repeatable) {
        Complain(setting, "is there twice");
        continue;
      }
      if (!setting.has_value && !row->value.empty()) {
        Complain(setting, absl::StrCat("wants a value: ", row->value));
        continue;
      }
      const absl::Status status =
          row->apply(setting.has_value ? setting.value : "true", options);
      if (!status.ok()) Complain(setting, status.message());
    }
  }

  void Complain(const Setting& setting, absl::string_view what) {
    problems.push_back(absl::StrCat(setting.place, ": ", what));
  }

  ServerOptions options;
  std::vector<std::string> problems;
};

absl::StatusOr<std::vector<Setting>> ReadConfig(const std::string& path) {
  DCP_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  std::vector<Setting> settings;
  size_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const std::vector<absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    const std::string key(absl::StripAsciiWhitespace(parts[0]));
    settings.push_back(
        {.place = absl::StrCat(path, ":", number, ": ", key),
         .key = key,
         .value = parts.size() < 2
                      ? ""
                      : std::string(absl::StripAsciiWhitespace(parts[1])),
         .has_value = parts.size() == 2});
  }
  return settings;
}

// Accepts "--key=value", "--key value" and "--flag".
std::vector<Setting> ReadArguments(const std::vector<std::string>& arguments,
                                   std::vector<std::string>& problems) {
  std::vector<Setting> settings;
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::string_view argument = arguments[i];
    if (!absl::ConsumePrefix(&argument, "--") || argument.empty()) {
      problems.push_back(absl::StrCat(
          arguments[i], ": is not an option, which begins with --"));
      continue;
    }
    const std::vector<absl::string_view> parts =
        absl::StrSplit(argument, absl::MaxSplits('=', 1));
    const std::string key(parts[0]);
    Setting setting{.place = absl::StrCat("--", key),
                    .key = key,
                    .value = "",
                    .has_value = parts.size() == 2};
    if (setting.has_value) setting.value = std::string(parts[1]);
    const OptionRow* row = FindRow(key);
    const bool wants_value =
        key == kConfig || (row != nullptr && !row->value.empty());
    if (!setting.has_value && wants_value && i + 1 < arguments.size() &&
        !absl::StartsWith(arguments[i + 1], "--")) {
      setting.value = arguments[++i];
      setting.has_value = true;
    }
    settings.push_back(std::move(setting));
  }
  return settings;
}

// Reports combinations of options that are not allowed although each option is.
void CheckTogether(const ServerOptions& options,
                   std::vector<std::string>& problems) {
  const auto complain = [&](const auto&... parts) {
    problems.push_back(absl::StrCat(parts...));
  };
  if (options.roots.empty()) {
    complain("root: is missing; --root=DIR says where checkpoints are");
  }
  if (options.state_dir.empty()) {
    complain("state-dir: is missing; jobs are remembered there");
  }
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    complain(options.tls_cert.empty() ? "tls-cert" : "tls-key",
             ": is missing; TLS wants both");
  }
  if (!options.tls_client_ca.empty() && options.tls_cert.empty()) {
    complain("tls-client-ca: wants tls-cert and tls-key");
  }
  if (options.tls_cert.empty() && !options.allow_insecure &&
      !IsLoopback(options.listen)) {
    complain("listen: ", options.listen,
             " can be reached by other machines and wants tls-cert and "
             "tls-key, or allow-insecure");
  }
  if (options.max_streams_per_client > options.max_streams) {
    complain("max-streams-per-client: ", options.max_streams_per_client,
             " exceeds max-streams, ", options.max_streams);
  }
  if (options.client_memory_bytes > options.max_memory_bytes) {
    complain("client-memory: ", FormatBytes(options.client_memory_bytes),
             " exceeds max-memory, ", FormatBytes(options.max_memory_bytes));
  }
  const uint64_t jobs_bytes =
      DivideMemory(options.max_memory_bytes, options.num_readers).jobs_bytes;
  if (options.job_memory_bytes > jobs_bytes) {
    complain("job-memory: ", FormatBytes(options.job_memory_bytes),
             " exceeds the ", FormatBytes(jobs_bytes), " that max-memory, ",
             FormatBytes(options.max_memory_bytes), ", leaves to jobs");
  }
}

std::string DefaultOf(absl::string_view key) {
  const ServerOptions options;
  if (key == "listen") return options.listen;
  if (key == "max-memory") return FormatBytes(options.max_memory_bytes);
  if (key == "job-memory") return FormatBytes(kDefaultJobBytes);
  if (key == "max-running-jobs") return absl::StrCat(options.max_running_jobs);
  if (key == "max-queued-jobs") return absl::StrCat(options.max_queued_jobs);
  if (key == "max-jobs-per-client") {
    return absl::StrCat(options.max_jobs_per_client);
  }
  if (key == "max-streams") return absl::StrCat(options.max_streams);
  if (key == "max-requests-per-second") {
    return absl::StrCat(options.max_requests_per_second);
  }
  if (key == "max-connections") return absl::StrCat(options.max_connections);
  if (key == "max-connections-per-address") {
    return absl::StrCat(options.max_connections_per_address);
  }
  if (key == "num-readers") return absl::StrCat(options.num_readers);
  if (key == "max-request") return FormatBytes(options.max_request_bytes);
  if (key == "keep-jobs") return FormatTime(options.keep_jobs);
  if (key == "max-ended-jobs") return absl::StrCat(options.max_ended_jobs);
  if (key == "log-level") return "info";
  if (key == "log-format") return "text";
  if (key == "disk-timeout") return FormatTime(options.disk_timeout);
  if (key == "drain") return FormatTime(options.drain);
  return "";
}

void AppendHelp(absl::string_view name, absl::string_view help,
                std::string& text) {
  for (absl::string_view line : absl::StrSplit(help, '\n')) {
    absl::StrAppendFormat(&text, "  %-24s %s\n", name, line);
    name = "";
  }
}

}  // namespace

uint64_t JobMemoryBytes(const ServerOptions& options) {
  if (options.job_memory_bytes != 0) return options.job_memory_bytes;
  return std::min(
      kDefaultJobBytes,
      DivideMemory(options.max_memory_bytes, options.num_readers).jobs_bytes);
}

int64_t StreamsPerClient(const ServerOptions& options) {
  if (options.max_streams_per_client != 0) {
    return options.max_streams_per_client;
  }
  return std::max<int64_t>(1, options.max_streams / 4 * 3);
}

uint64_t ClientMemoryBytes(const ServerOptions& options) {
  if (options.client_memory_bytes != 0) return options.client_memory_bytes;
  return std::max(options.max_memory_bytes / 2,
                  std::min(options.max_memory_bytes, kMinClientBytes));
}

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
    } else if (flag.key == kCheckConfig) {
      parser.options.check_config = true;
    } else if (flag.key != kConfig) {
      rest.push_back(std::move(flag));
    } else if (!flag.has_value) {
      parser.Complain(flag, "wants a value: FILE");
    } else if (absl::StatusOr<std::vector<Setting>> settings =
                   ReadConfig(flag.value);
               settings.ok()) {
      parser.Apply(*settings, false);
    } else {
      parser.Complain(flag, settings.status().message());
    }
  }
  if (parser.options.help || parser.options.version) return parser.options;
  // Roots on the command line replace those in the file.
  if (std::any_of(rest.begin(), rest.end(), [](const Setting& setting) {
        return setting.key == "root" || setting.key == "read-only-root";
      })) {
    parser.options.roots.clear();
  }
  parser.Apply(rest, true);
  // With other problems, an option that seems missing may be misspelt.
  if (parser.problems.empty()) CheckTogether(parser.options, parser.problems);
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
      "SIGTERM and SIGINT drain it: no new calls, those that go on may end,\n"
      "and jobs too; those that do not go on at the next start. A second one\n"
      "stops calls and jobs at once. SIGHUP makes it read tokens and\n"
      "certificates again.\n"
      "\n"
      "Options of the command line only:\n";
  AppendHelp("--config=FILE",
             "Options as lines of `key = value`; # begins a\n"
             "comment. The command line has the last word.",
             text);
  AppendHelp("--check-config",
             "Say what is wrong with options, files and folders,\n"
             "and end without serving: 0 if nothing is.",
             text);
  AppendHelp("--version", "The version.", text);
  AppendHelp("--help", "This text.", text);
  text += "\nOptions there and in the file:\n";
  for (const OptionRow& row : kRows) {
    const std::string value = DefaultOf(row.key);
    AppendHelp(
        absl::StrCat("--", row.key, row.value.empty() ? "" : "=", row.value),
        absl::StrCat(row.help,
                     value.empty() ? "" : absl::StrCat("\nDefault: ", value)),
        text);
  }
  text +=
      "\nSizes are such as 512MiB or 2GiB, times such as 30s, 10min, 2h or "
      "7d.\n"
      "Exit codes: 0 stopped as asked, 1 could not serve, 2 wrong options, 3\n"
      "stopped as asked though a file system held threads of the server.\n";
  return text;
}

}  // namespace dcp::server
