// SPDX-License-Identifier: Apache-2.0
// ServerOptions: the configuration of a server. Plain data; command_line.h
// parses it.
#ifndef SERVER_OPTIONS_SERVER_OPTIONS_H_
#define SERVER_OPTIONS_SERVER_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/access/access.h"
#include "server/process/log_line.h"

namespace dcp::server {

// The least that client-memory may be: a verification takes this much, and a
// stream a quarter of it.
inline constexpr uint64_t kMinClientBytes = uint64_t{64} << 20;

struct ServerOptions {
  // "127.0.0.1:7420", "[::1]:0", "unix:/run/dcp-server.sock". Port 0 is any
  // free port. Without TLS, an address other than loopback is refused unless
  // allow_insecure is set.
  std::string listen = "127.0.0.1:7420";
  bool allow_insecure = false;
  std::vector<Root> roots;  // at least one

  // PEM files. With a client CA, clients must present certificates (mutual
  // TLS).
  std::string tls_cert;
  std::string tls_key;
  std::string tls_client_ca;
  std::string tokens_file;  // see access.h

  // Holds the jobs and their progress; no other server may use it.
  std::string state_dir;
  // For the payload of all jobs and streams together.
  uint64_t max_memory_bytes = uint64_t{2} << 30;
  // For jobs that do not specify it. 0: kDefaultJobBytes, or the limit for all
  // jobs if that is less.
  uint64_t job_memory_bytes = 0;
  int64_t max_running_jobs = 2;
  int64_t max_queued_jobs = 1000;
  int64_t max_jobs_per_client = 200;  // queued and running
  int64_t max_streams = 1000;
  // Limits for one client (identified by name, or by address if there are no
  // tokens), so that no client crowds out the others. 0: see StreamsPerClient
  // and ClientMemoryBytes.
  int64_t max_streams_per_client = 0;
  uint64_t client_memory_bytes = 0;  // for the client's calls
  // Calls by one client per second.
  int64_t max_requests_per_second = 1000;
  // Open connections; more are closed at once. An address is an IPv4 address or
  // a /64 of IPv6. Lowered if the process may not have that many descriptors.
  int64_t max_connections = 2000;
  int64_t max_connections_per_address = 500;
  // Threads that read for streams.
  int64_t num_readers = 4;
  uint64_t max_request_bytes = uint64_t{4} << 20;
  // Ended jobs are deleted after this time, or when there are more than
  // max_ended_jobs.
  absl::Duration keep_jobs = absl::Hours(24 * 7);
  int64_t max_ended_jobs = 10000;
  // How long a call waits for the file system before it is ended.
  absl::Duration disk_timeout = absl::Minutes(2);
  // The time that streams and jobs get to finish after SIGTERM.
  absl::Duration drain = absl::Seconds(30);
  // Address of the HTTP endpoint for Prometheus; empty: none.
  std::string metrics_listen;

  LogFormat log;

  bool check_config = false;
  bool version = false;
  bool licenses = false;
  bool help = false;
};

// The memory for a job that requests no other amount.
uint64_t JobMemoryBytes(const ServerOptions& options);

// The limits for one client. Defaults: three quarters of the streams; half of
// max-memory, but at least enough for one call.
int64_t StreamsPerClient(const ServerOptions& options);
uint64_t ClientMemoryBytes(const ServerOptions& options);

}  // namespace dcp::server

#endif  // SERVER_OPTIONS_SERVER_OPTIONS_H_
