// SPDX-License-Identifier: Apache-2.0

#include "server/options/option_table.h"

#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/io/object/object_url.h"
#include "server/memory/memory_shares.h"
#include "server/process/option_value.h"

namespace dcp::server {
namespace {

// Each reader is a thread; more would not make a disk faster.
constexpr int64_t kMaxReaders = 256;
// Each running job has separate lanes, with a thread each.
constexpr int64_t kMaxRunningJobs = 64;
constexpr int64_t kMaxJobs = 100'000;
constexpr int64_t kMaxStreams = 50'000;
constexpr int64_t kMaxRequestsPerSecond = 1'000'000;
// Each takes a descriptor and some 50 KiB in gRPC.
constexpr int64_t kMaxConnections = 100'000;
// A smaller limit would not allow requests with the parts of a large model,
// which take some 100 bytes each; with a larger one a single client's request
// is a burden.
constexpr uint64_t kMinRequestBytes = uint64_t{64} << 10;
constexpr uint64_t kMaxRequestBytes = uint64_t{64} << 20;
// No machine has more memory; a larger value has the wrong unit.
constexpr uint64_t kMostMemoryBytes = uint64_t{64} << 40;

template <typename T>
absl::Status Store(absl::StatusOr<T> value, T& field) {
  if (value.ok()) field = *std::move(value);
  return value.status();
}

// Rows, by field type.

template <int64_t ServerOptions::*kField, int64_t kMax>
constexpr OptionRow Count(absl::string_view key, absl::string_view help) {
  return {key, "N", help,
          [](absl::string_view value, ServerOptions& options) {
            return Store(ParseCount(value, 1, kMax), options.*kField);
          },
          [](const ServerOptions& options) {
            // 0 stands for a value that follows from others; help states it.
            return options.*kField == 0 ? "" : absl::StrCat(options.*kField);
          }};
}

template <uint64_t ServerOptions::*kField, uint64_t kMin, uint64_t kMax>
absl::Status SetBytes(absl::string_view value, ServerOptions& options) {
  DCP_ASSIGN_OR_RETURN(const uint64_t bytes, ParseBytes(value));
  if (bytes < kMin || bytes > kMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", value, "' is not a size from ", FormatBytes(kMin),
                     " to ", FormatBytes(kMax)));
  }
  options.*kField = bytes;
  return absl::OkStatus();
}

template <uint64_t ServerOptions::*kField, uint64_t kMin, uint64_t kMax>
constexpr OptionRow Bytes(absl::string_view key, absl::string_view help) {
  return {key, "SIZE", help, SetBytes<kField, kMin, kMax>,
          [](const ServerOptions& options) {
            return options.*kField == 0 ? "" : FormatBytes(options.*kField);
          }};
}

template <absl::Duration ServerOptions::*kField>
constexpr OptionRow Time(absl::string_view key, absl::string_view help) {
  return {
      key, "TIME", help,
      [](absl::string_view value, ServerOptions& options) {
        return Store(ParseTime(value), options.*kField);
      },
      [](const ServerOptions& options) { return FormatTime(options.*kField); }};
}

template <std::string ServerOptions::*kField, bool kUnixSockets>
constexpr OptionRow Address(absl::string_view key, absl::string_view help) {
  return {key, "ADDRESS", help,
          [](absl::string_view value, ServerOptions& options) {
            return Store(ParseAddress(value, kUnixSockets), options.*kField);
          },
          [](const ServerOptions& options) { return options.*kField; }};
}

absl::Status StorePath(absl::string_view value, std::string& field) {
  if (!absl::StartsWith(value, "/")) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", value, "' is not an absolute path"));
  }
  field = std::string(value);
  return absl::OkStatus();
}

template <std::string ServerOptions::*kField>
absl::Status SetPath(absl::string_view value, ServerOptions& options) {
  return StorePath(value, options.*kField);
}

template <bool kWritable>
absl::Status AddRoot(absl::string_view value, ServerOptions& options) {
  Root root{.writable = kWritable};
  if (IsObjectUrl(value)) {
    root.path = std::string(value);
  } else {
    DCP_RETURN_IF_ERROR(StorePath(value, root.path));
  }
  options.roots.push_back(std::move(root));
  return absl::OkStatus();
}

absl::Status SetAllowInsecure(absl::string_view value, ServerOptions& options) {
  return Store(ParseBool(value), options.allow_insecure);
}

absl::Status SetLogLevel(absl::string_view value, ServerOptions& options) {
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

absl::Status SetLogFormat(absl::string_view value, ServerOptions& options) {
  if (value != "text" && value != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("'", value, "' is not text or json"));
  }
  options.log.json = value == "json";
  return absl::OkStatus();
}

constexpr OptionRow kOptions[] = {
    Address<&ServerOptions::listen, true>(
        "listen",
        "The address to serve on: 127.0.0.1:7420, [::]:7420 or\n"
        "unix:/run/dcp-server.sock. Port 0: any free one.\n"
        "Serving other machines requires TLS."),
    {"allow-insecure", "",
     "Serve other machines without TLS: everyone on\n"
     "the network can read tokens and checkpoints.",
     SetAllowInsecure},
    {"root", "DIR",
     "Checkpoints below it may be read and written: a\n"
     "folder, or s3://bucket/runs. At least one root is\n"
     "required; may be repeated.",
     AddRoot<true>, nullptr, true},
    {"read-only-root", "DIR", "Checkpoints below it may only be read.",
     AddRoot<false>, nullptr, true},
    {"state-dir", "DIR",
     "The folder for jobs; no other server may use it, and\n"
     "it is not below a root. Required.",
     SetPath<&ServerOptions::state_dir>},
    {"tls-cert", "FILE",
     "Certificate chain, PEM. TLS requires this and\ntls-key.",
     SetPath<&ServerOptions::tls_cert>},
    {"tls-key", "FILE", "The private key for tls-cert, PEM.",
     SetPath<&ServerOptions::tls_key>},
    {"tls-client-ca", "FILE",
     "Clients must present a certificate from this\nauthority (mutual TLS).",
     SetPath<&ServerOptions::tls_client_ca>},
    {"tokens-file", "FILE",
     "Clients must send a token from this file. Lines:\n"
     "NAME SHA256 [admin] [read=DIR]... [write=DIR]...\n"
     "Make SHA256 with: printf %s \"$TOKEN\" | sha256sum",
     SetPath<&ServerOptions::tokens_file>},
    // With less, no tensor could be read.
    Bytes<&ServerOptions::max_memory_bytes, kMinReadingBytes, kMostMemoryBytes>(
        "max-memory", "Memory for the payload of all jobs and streams."),
    {"job-memory", "SIZE",
     "Memory for a job that does not request any; less if\n"
     "max-memory leaves less to jobs.",
     SetBytes<&ServerOptions::job_memory_bytes, kMinMemoryBytes,
              kMostMemoryBytes>,
     [](const ServerOptions&) { return FormatBytes(kDefaultJobBytes); }},
    Count<&ServerOptions::max_running_jobs, kMaxRunningJobs>(
        "max-running-jobs", "Jobs that run at the same time."),
    Count<&ServerOptions::max_queued_jobs, kMaxJobs>(
        "max-queued-jobs", "Jobs that wait for their turn."),
    Count<&ServerOptions::max_jobs_per_client, kMaxJobs>(
        "max-jobs-per-client", "Queued and running jobs of one client."),
    Count<&ServerOptions::max_streams, kMaxStreams>(
        "max-streams", "Calls that read a checkpoint at the same time."),
    Count<&ServerOptions::max_streams_per_client, kMaxStreams>(
        "max-streams-per-client",
        "Such calls of one client: a name in tokens-file or,\n"
        "without it, an address.\n"
        "Default: three quarters of max-streams"),
    Bytes<&ServerOptions::client_memory_bytes, kMinClientBytes,
          kMostMemoryBytes>("client-memory",
                            "The part of max-memory for one client's calls.\n"
                            "Default: half of max-memory"),
    Count<&ServerOptions::max_requests_per_second, kMaxRequestsPerSecond>(
        "max-requests-per-second",
        "Calls per second of one client, of any kind; those\n"
        "of ten seconds may come at once."),
    Count<&ServerOptions::max_connections, kMaxConnections>(
        "max-connections", "Open connections; further ones are closed."),
    Count<&ServerOptions::max_connections_per_address, kMaxConnections>(
        "max-connections-per-address",
        "Connections of one IPv4 address or one /64 of IPv6."),
    Count<&ServerOptions::num_readers, kMaxReaders>(
        "num-readers", "Threads that read for streams."),
    Bytes<&ServerOptions::max_request_bytes, kMinRequestBytes,
          kMaxRequestBytes>("max-request", "The largest size of a request."),
    Time<&ServerOptions::keep_jobs>("keep-jobs",
                                    "How long ended jobs are remembered."),
    Count<&ServerOptions::max_ended_jobs, kMaxJobs>(
        "max-ended-jobs", "Ended jobs that are remembered."),
    Time<&ServerOptions::disk_timeout>(
        "disk-timeout",
        "How long the file system of a root may take to open\n"
        "a checkpoint or to give the next bytes of a stream;\n"
        "calls that wait longer are UNAVAILABLE."),
    Time<&ServerOptions::drain>(
        "drain",
        "How long after SIGTERM calls may take to end, and\n"
        "jobs that cannot continue at the next start."),
    Address<&ServerOptions::metrics_listen, false>(
        "metrics-listen", "Prometheus' metrics, at http://ADDRESS/metrics."),
    {"log-level", "LEVEL", "The lowest level to log: info, warning or error.",
     SetLogLevel, [](const ServerOptions&) { return std::string("info"); }},
    {"log-format", "FORMAT", "Lines of text, or of JSON for programs.",
     SetLogFormat, [](const ServerOptions&) { return std::string("text"); }},
};

}  // namespace

absl::Span<const OptionRow> AllOptions() { return kOptions; }

const OptionRow* FindOption(absl::string_view key) {
  for (const OptionRow& row : kOptions) {
    if (row.key == key) return &row;
  }
  return nullptr;
}

}  // namespace dcp::server
