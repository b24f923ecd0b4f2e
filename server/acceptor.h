// Acceptor: takes connections from a Listener and hands them to gRPC, no more
// than the process has descriptors for and no more than one address may have.
// gRPC's own listener has no bound, and never listens again once descriptors
// have run out; this one goes on when there are some again. A connection beyond
// a bound is closed at once, so that its client knows. One thread of its own.
#ifndef SERVER_ACCEPTOR_H_
#define SERVER_ACCEPTOR_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/listener.h"
#include "server/log_limiter.h"

namespace dcp::server {

struct ConnectionLimits {
  int64_t max_connections = 2000;
  // Of one IPv4 address or one /64 of IPv6; a unix socket has none.
  int64_t max_per_address = 500;
};

// Of `wanted` connections as many as the limit of descriptors allows, when a
// quarter of it is kept for files.
int64_t ConnectionsWithinFileLimit(int64_t wanted);

class Acceptor {
 public:
  // Owns the nonblocking descriptor from then on. Called by the thread.
  using Accepted = absl::AnyInvocable<void(int listener_fd, int fd)>;

  // Accepts from now on. The limits must be right already.
  Acceptor(Listener listener, const ConnectionLimits& limits,
           Accepted accepted);
  // As Stop.
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Closes the port; what was handed over stays.
  void Stop();

  // Any thread.
  int64_t num_open();
  int64_t num_refused() const;

 private:
  // Whose connection it is; the cookie tells when the descriptor has become
  // another socket, or none, because gRPC has closed it.
  struct Connection {
    uint64_t cookie = 0;
    std::string address;
  };

  void Run();
  // Whether descriptors have run out.
  bool AcceptAll(int listener_fd);
  void Take(int listener_fd, int fd, const sockaddr_storage& peer);
  // Why the next one must not be taken; empty where it may.
  std::string CheckLimits(const std::string& address)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetClosed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(int fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t NumOf(const std::string& address) const
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
  std::thread thread_;  // the last: it uses the others
};

}  // namespace dcp::server

#endif  // SERVER_ACCEPTOR_H_
