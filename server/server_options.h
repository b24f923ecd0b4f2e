// ServerOptions: how a server is run, from flags and a file of "key = value"
// lines; both know the same keys. Pure but for reading the file.
#ifndef SERVER_SERVER_OPTIONS_H_
#define SERVER_SERVER_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/access.h"
#include "server/log_line.h"

namespace dcp::server {

struct ServerOptions {
  // "127.0.0.1:7420", "[::1]:0", "unix:/run/dcp-server.sock". Port 0: any that
  // is free. Without TLS other than loopback is refused, unless told otherwise.
  std::string listen = "127.0.0.1:7420";
  bool allow_insecure = false;
  std::vector<Root> roots;  // one at least

  // PEM files. A client CA demands certificates of clients (mutual TLS).
  std::string tls_cert;
  std::string tls_key;
  std::string tls_client_ca;
  std::string tokens_file;  // see access.h

  // Jobs and how far they came; a directory of this server alone.
  std::string state_dir;
  // For payload, of all jobs and streams together.
  uint64_t max_memory_bytes = uint64_t{2} << 30;
  // Where a job does not say; 0: kDefaultJobBytes, or what jobs may have at all
  // where that is less.
  uint64_t job_memory_bytes = 0;
  int64_t max_running_jobs = 2;
  int64_t max_queued_jobs = 1000;
  int64_t max_jobs_per_client = 200;  // queued and running
  int64_t max_streams = 1000;
  // Of one client, by its name or, where there are no tokens, its address. So
  // that one does not keep the others out; 0: what StreamsPerClient and
  // ClientMemoryBytes say.
  int64_t max_streams_per_client = 0;
  uint64_t client_memory_bytes = 0;  // of its calls
  // Calls of any kind that one client may make a second.
  int64_t max_requests_per_second = 1000;
  // At a time; beyond it new ones are closed. Of an address: an IPv4 address or
  // a /64 of IPv6. Lowered where the process may not have so many descriptors.
  int64_t max_connections = 2000;
  int64_t max_connections_per_address = 500;
  // Threads that read for streams.
  int64_t num_readers = 4;
  uint64_t max_request_bytes = uint64_t{4} << 20;
  // Ended jobs are forgotten after so long, or when there are more.
  absl::Duration keep_jobs = absl::Hours(24 * 7);
  int64_t max_ended_jobs = 10000;
  // For a file system to answer; a call that waits longer for it ends.
  absl::Duration disk_timeout = absl::Minutes(2);
  // For streams and jobs to come to a good place after SIGTERM.
  absl::Duration drain = absl::Seconds(30);
  // Of Prometheus' HTTP endpoint; empty: none.
  std::string metrics_listen;

  LogFormat log;

  bool check_config = false;
  bool version = false;
  bool help = false;
};

// What a job gets that does not ask for another.
uint64_t JobMemoryBytes(const ServerOptions& options);

// What one client may have at most: where it is not said, three quarters of the
// streams, and half of max-memory or as much as one call takes.
int64_t StreamsPerClient(const ServerOptions& options);
uint64_t ClientMemoryBytes(const ServerOptions& options);

// The arguments after the program's name; --config=FILE first, whatever its
// place. Everything wrong is in the error, one line each, with key, value and
// what is allowed.
absl::StatusOr<ServerOptions> ParseServerOptions(
    const std::vector<std::string>& arguments);

// What --help prints.
std::string ServerHelp();

}  // namespace dcp::server

#endif  // SERVER_SERVER_OPTIONS_H_
