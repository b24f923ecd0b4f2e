// SPDX-License-Identifier: Apache-2.0
// Acceptor: takes connections from a Listener and hands them to gRPC, up to a
// limit for the process' descriptors and a limit per client address. gRPC's own
// listener has no limit, and stops listening for good once descriptors have run
// out; this one continues when there are descriptors again. A connection beyond
// a limit is closed at once, so that the client notices. Has one thread.
#ifndef SERVER_TRANSPORT_ACCEPTOR_H_
#define SERVER_TRANSPORT_ACCEPTOR_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "dcp/base/thread.h"
#include "server/process/log_limiter.h"
#include "server/transport/listener.h"

namespace dcp::server {

struct ConnectionLimits {
  int64_t max_connections = 2000;
  // For one IPv4 address or one /64 of IPv6; does not apply to a unix socket.
  int64_t max_per_address = 500;
};

// How many connections, at most `wanted`, the descriptor limit allows when a
// quarter of it is kept for files.
int64_t ConnectionsWithinFileLimit(int64_t wanted);

class Acceptor {
 public:
  // Takes ownership of `fd`, which is nonblocking. Called on the Acceptor's
  // thread.
  using Accepted = absl::AnyInvocable<void(int listener_fd, int fd)>;

  // `limits` are used as they are: call ConnectionsWithinFileLimit before.
  Acceptor(Listener listener, const ConnectionLimits& limits,
           Accepted accepted);
  // Calls Stop.
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Accepts connections from now on. Called once; an error if the system starts
  // no thread.
  absl::Status Start();
  // Closes the port. Connections that were handed over stay open.
  void Stop();

  // Any thread.
  int64_t num_open();
  int64_t num_refused() const;

 private:
  // The owner of a descriptor. A different cookie shows that gRPC has closed
  // the descriptor and that it now is another socket, or none.
  struct Connection {
    uint64_t cookie = 0;
    std::string address;
  };

  void Run();
  // Returns true if descriptors have run out.
  bool AcceptAll(int listener_fd);
  void Take(int listener_fd, int fd, const sockaddr_storage& peer);
  // The reason why the next connection must be refused; empty if it may be
  // accepted.
  std::string CheckLimits(const std::string& address)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetClosed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(int fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t NumConnections(const std::string& address) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Listener listener_;
  const ConnectionLimits limits_;
  Accepted accepted_;
  LogLimiter refused_log_{"connection_refused"};
  LogLimiter no_files_log_{"no_descriptors", {.burst = 1, .per_second = 0.1}};
  int stop_event_ = -1;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<int, Connection> connections_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, int64_t> num_of_ ABSL_GUARDED_BY(mutex_);
  absl::Duration swept_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
  int64_t num_refused_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<Thread> thread_;  // last: it uses the other members
};

}  // namespace dcp::server

#endif  // SERVER_TRANSPORT_ACCEPTOR_H_
