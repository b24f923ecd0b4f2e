// SPDX-License-Identifier: Apache-2.0

#include "server/transport/acceptor.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"
#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "dcp/base/steady_time.h"
#include "server/process/log_text.h"
#include "server/transport/guarded_connections.h"

namespace dcp::server {
namespace {

// When descriptors have run out, the next attempt comes after this time.
constexpr int kRetryMs = 100;
// The time between checks for requests that are late.
constexpr int kLookMs = 5000;
// Minimum time between sweeps for closed connections; a sweep costs a system
// call for each connection.
constexpr absl::Duration kSweepPeriod = absl::Milliseconds(20);

// The key by which connections are counted: the four bytes of an IPv4 address,
// also when it is mapped into IPv6, or an IPv6 address' first eight bytes.
// Empty for a unix socket.
std::string AddressKey(const sockaddr_storage& peer) {
  if (peer.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(peer);
    return {reinterpret_cast<const char*>(&v4.sin_addr), 4};
  }
  if (peer.ss_family != AF_INET6) return "";
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(peer);
  const char* const bytes = reinterpret_cast<const char*>(&v6.sin6_addr);
  return IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) ? std::string(bytes + 12, 4)
                                             : std::string(bytes, 8);
}

std::string PeerName(const sockaddr_storage& peer) {
  char text[INET6_ADDRSTRLEN] = "";
  if (peer.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(peer).sin_addr,
              text, sizeof(text));
  } else if (peer.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr,
              text, sizeof(text));
  }
  return text[0] == '\0' ? "unix" : text;
}

bool AreDescriptorsOut(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS ||
         error == ENOMEM;
}

}  // namespace

int64_t ConnectionsWithinFileLimit(int64_t wanted) {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  if (limit.rlim_cur == RLIM_INFINITY) return wanted;
  const auto files = static_cast<int64_t>(limit.rlim_cur);
  return std::clamp<int64_t>(files - files / 4, 1, wanted);
}

Acceptor::Acceptor(Listener listener, const ConnectionLimits& limits,
                   Accepted accepted)
    : listener_(std::move(listener)),
      limits_(limits),
      accepted_(std::move(accepted)),
      stop_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  DCP_CHECK(stop_event_ >= 0, std::strerror(errno));
}

absl::Status Acceptor::Start() {
  DCP_ASSIGN_OR_RETURN(thread_, Thread::Start([this] { Run(); }));
  return absl::OkStatus();
}

Acceptor::~Acceptor() {
  Stop();
  close(stop_event_);
}

void Acceptor::Stop() {
  if (thread_.has_value()) {
    DCP_CHECK(eventfd_write(stop_event_, 1) == 0);
    thread_.reset();  // joins
  }
  const Listener closed = std::move(listener_);
}

int64_t Acceptor::num_open() {
  absl::MutexLock lock(&mutex_);
  ForgetClosed();
  return static_cast<int64_t>(connections_.size());
}

int64_t Acceptor::num_refused() const {
  absl::MutexLock lock(&mutex_);
  return num_refused_;
}

void Acceptor::Run() {
  std::vector<pollfd> waiting = {{stop_event_, POLLIN, 0}};
  for (int fd : listener_.sockets()) waiting.push_back({fd, POLLIN, 0});
  bool exhausted = false;
  absl::Duration looked = SteadyNow();
  while (true) {
    // Without descriptors, connections wait in the backlog until the next
    // attempt.
    const nfds_t num_watched = exhausted ? 1 : waiting.size();
    if (poll(waiting.data(), num_watched, exhausted ? kRetryMs : kLookMs) < 0 &&
        errno != EINTR) {
      DCP_CHECK(errno == ENOMEM, std::strerror(errno));
      continue;
    }
    if (waiting[0].revents != 0) return;
    const absl::Duration now = SteadyNow();
    if (now - looked >= absl::Milliseconds(kLookMs)) {
      looked = now;
      CutLateRequests(now);
    }
    exhausted = false;
    for (int fd : listener_.sockets()) exhausted = AcceptAll(fd) || exhausted;
  }
}

bool Acceptor::AcceptAll(int listener_fd) {
  // Bounded, so that the other sockets are served too.
  for (int i = 0; i < 64; ++i) {
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    const int fd = accept4(listener_fd, reinterpret_cast<sockaddr*>(&peer),
                           &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      Take(listener_fd, fd, peer);
      continue;
    }
    if (AreDescriptorsOut(errno)) {
      if (no_files_log_.Allow()) {
        DCP_LOG(kError) << "event=no_descriptors error="
                        << LogText(std::strerror(errno));
      }
      return true;
    }
    if (errno == EAGAIN) return false;
    // EINTR, ECONNABORTED or another error of this connection only.
  }
  return false;
}

void Acceptor::Take(int listener_fd, int fd, const sockaddr_storage& peer) {
  const std::string address = AddressKey(peer);
  std::string refused;
  {
    absl::MutexLock lock(&mutex_);
    Forget(fd);  // gRPC has closed the previous connection
    refused = CheckLimits(address);
    if (refused.empty()) {
      connections_[fd] = {.cookie = SocketCookie(fd), .address = address};
      ++num_of_[address];
    } else {
      ++num_refused_;
    }
  }
  if (refused.empty()) return accepted_(listener_fd, fd);
  close(fd);
  if (refused_log_.Allow()) {
    DCP_LOG(kWarning) << "event=connection_refused peer=" << PeerName(peer)
                      << " why=" << LogText(refused);
  }
}

std::string Acceptor::CheckLimits(const std::string& address) {
  const auto is_full = [&] {
    mutex_.AssertHeld();
    return static_cast<int64_t>(connections_.size()) >= limits_.max_connections;
  };
  const auto has_too_many = [&] {
    mutex_.AssertHeld();
    return !address.empty() &&
           NumConnections(address) >= limits_.max_per_address;
  };
  if (is_full() || has_too_many()) ForgetClosed();
  if (is_full()) {
    return absl::StrCat("there are ", limits_.max_connections,
                        " connections, see max-connections");
  }
  if (has_too_many()) {
    return absl::StrCat("the address has ", limits_.max_per_address,
                        " connections, see max-connections-per-address");
  }
  return "";
}

void Acceptor::ForgetClosed() {
  const absl::Duration now = SteadyNow();
  if (now - swept_ < kSweepPeriod) return;
  swept_ = now;
  std::vector<int> closed;
  for (const auto& [fd, connection] : connections_) {
    if (SocketCookie(fd) != connection.cookie) closed.push_back(fd);
  }
  for (int fd : closed) Forget(fd);
}

void Acceptor::Forget(int fd) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  const auto count = num_of_.find(found->second.address);
  if (--count->second == 0) num_of_.erase(count);
  connections_.erase(found);
}

int64_t Acceptor::NumConnections(const std::string& address) const {
  const auto found = num_of_.find(address);
  return found == num_of_.end() ? 0 : found->second;
}

}  // namespace dcp::server
