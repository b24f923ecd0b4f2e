// SPDX-License-Identifier: Apache-2.0

#include "server/transport/guarded_connections.h"

#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "dcp/base/log.h"
#include "dcp/base/steady_time.h"
#include "server/process/log_limiter.h"
#include "server/process/log_text.h"
#include "server/transport/frame_guard.h"

extern "C" {
ssize_t __real_recvmsg(int fd, msghdr* message, int flags);
ssize_t __wrap_recvmsg(int fd, msghdr* message, int flags);
ssize_t __real_sendmsg(int fd, const msghdr* message, int flags);
ssize_t __wrap_sendmsg(int fd, const msghdr* message, int flags);
int __real_close(int fd);
int __wrap_close(int fd);
SSL* __real_SSL_new(SSL_CTX* context);
SSL* __wrap_SSL_new(SSL_CTX* context);
int __real_SSL_read(SSL* ssl, void* bytes, int size);
int __wrap_SSL_read(SSL* ssl, void* bytes, int size);
int __real_SSL_write(SSL* ssl, const void* bytes, int size);
int __wrap_SSL_write(SSL* ssl, const void* bytes, int size);
}

namespace dcp::server {
namespace {

// Owners: the connection, the SSL object, and the thread that reads or writes.
using GuardPointer = std::shared_ptr<FrameGuard>;

// A peer's name as gRPC writes it, without brackets and escapes.
std::string PlainPeer(absl::string_view peer) {
  return absl::StrReplaceAll(
      peer, {{"%5B", ""}, {"%5D", ""}, {"[", ""}, {"]", ""}, {"%25", "%"}});
}

// The same name for a socket; empty for a unix socket.
std::string SocketPeer(int fd) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0)
    return "";
  char text[INET6_ADDRSTRLEN] = "";
  if (peer.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(peer);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return absl::StrCat("ipv4:", text, ":", ntohs(v4.sin_port));
  }
  if (peer.ss_family != AF_INET6) return "";
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(peer);
  const bool is_v4 = IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr);
  inet_ntop(is_v4 ? AF_INET : AF_INET6, v6.sin6_addr.s6_addr + (is_v4 ? 12 : 0),
            text, sizeof(text));
  return absl::StrCat(is_v4 ? "ipv4:" : "ipv6:", text, ":",
                      ntohs(v6.sin6_port));
}

// One instance per process, like the wrapped functions. Never destroyed,
// because gRPC's threads may read while the process ends.
class Connections {
 public:
  static Connections& Get() {
    static Connections& connections = *new Connections;
    return connections;
  }

  GuardPointer Add(int fd, Encryption encryption) {
    Connection added{.guard = std::make_shared<FrameGuard>(load_),
                     .encryption = encryption,
                     .peer = SocketPeer(fd)};
    GuardPointer guard = added.guard;
    absl::MutexLock lock(&mutex_);
    if (!added.peer.empty()) by_peer_[added.peer] = added.guard;
    connections_[fd] = std::move(added);
    return guard;
  }

  // Before the descriptor is closed and may become another.
  void Forget(int fd) {
    Connection forgotten;  // destroyed without the lock
    {
      absl::MutexLock lock(&mutex_);
      const auto found = connections_.find(fd);
      if (found == connections_.end()) return;
      forgotten = std::move(found->second);
      by_peer_.erase(forgotten.peer);
      connections_.erase(found);
    }
    if (forgotten.encryption == Encryption::kTls &&
        !forgotten.guard->has_received()) {
      LogFailedHandshake(forgotten.peer);
    }
  }

  // Null if the descriptor is not a connection without TLS.
  GuardPointer FindPlaintext(int fd) {
    absl::MutexLock lock(&mutex_);
    const auto found = connections_.find(fd);
    if (found == connections_.end() ||
        found->second.encryption != Encryption::kNone) {
      return nullptr;
    }
    return found->second.guard;
  }

  GuardPointer FindPeer(absl::string_view peer) {
    absl::MutexLock lock(&mutex_);
    const auto found = by_peer_.find(PlainPeer(peer));
    return found == by_peer_.end() ? nullptr : found->second;
  }

  // Passes the bytes that a client sent. Returns false if the connection must
  // end.
  bool Receive(FrameGuard& guard, absl::string_view bytes) {
    const bool is_cut = !guard.complaint().empty();
    const bool passed = guard.Receive(bytes, SteadyNow());
    if (!passed && !is_cut)
      LogConnectionCut(guard.complaint(), GuardedPeer(guard));
    while (load_.HasTooManyRequestBytes() && CutLargest()) {
    }
    return passed && guard.complaint().empty();
  }

  void CutLate(absl::Duration now) {
    absl::MutexLock lock(&mutex_);
    for (const auto& [fd, connection] : connections_) {
      if (!connection.guard->IsLate(now)) continue;
      Cut(fd, connection,
          absl::StrCat("a request is incomplete after ",
                       absl::FormatDuration(kMaxRequestTime)));
    }
  }

  CallLoad& load() { return load_; }
  uint64_t num_cut() const { return num_cut_; }
  uint64_t num_failed_handshakes() const { return num_failed_handshakes_; }

 private:
  struct Connection {
    GuardPointer guard;
    Encryption encryption = Encryption::kNone;
    std::string peer;  // empty for a unix socket
  };

  // Ends the connection that takes the most memory for requests, if possible
  // one without a call that has a valid token. Returns false if there is none.
  bool CutLargest() {
    absl::MutexLock lock(&mutex_);
    const auto weight = [](const FrameGuard& guard) {
      const int64_t bytes = guard.request_bytes();
      return std::pair(bytes > 0 && !guard.has_client_call(), bytes);
    };
    const auto largest = std::max_element(
        connections_.begin(), connections_.end(),
        [&weight](const auto& a, const auto& b) {
          return weight(*a.second.guard) < weight(*b.second.guard);
        });
    if (largest == connections_.end()) return false;
    const auto [has_no_token, bytes] = weight(*largest->second.guard);
    return bytes > 0 &&
           Cut(largest->first, largest->second,
               absl::StrCat("the requests that are incomplete or not answered "
                            "take ",
                            bytes, " bytes, the most of all connections",
                            has_no_token ? " without a token" : "",
                            ", and all together more than ",
                            load_.max_request_bytes.load()));
  }

  // The descriptor is open, because Forget waits for the lock. gRPC notices
  // that the connection has ended.
  bool Cut(int fd, const Connection& connection, absl::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!connection.guard->Cut(why)) return false;
    shutdown(fd, SHUT_RDWR);
    LogConnectionCut(why, connection.peer);
    return true;
  }

  std::string GuardedPeer(const FrameGuard& guard) {
    absl::MutexLock lock(&mutex_);
    for (const auto& [fd, connection] : connections_) {
      if (connection.guard.get() == &guard) return connection.peer;
    }
    return "";
  }

  void LogConnectionCut(absl::string_view why, absl::string_view peer) {
    ++num_cut_;
    if (!log_limiter_.Allow()) return;
    DCP_LOG(kWarning) << "event=connection_cut peer=" << LogText(peer)
                      << " why=" << LogText(why);
  }

  // A TLS client has left, or was refused, before it sent anything.
  void LogFailedHandshake(absl::string_view peer) {
    ++num_failed_handshakes_;
    if (!handshake_limiter_.Allow()) return;
    DCP_LOG(kWarning) << "event=handshake_failed peer=" << LogText(peer);
  }

  CallLoad load_;
  LogLimiter log_limiter_{"connection_cut"};
  LogLimiter handshake_limiter_{"handshake_failed"};
  std::atomic<uint64_t> num_cut_ = 0;
  std::atomic<uint64_t> num_failed_handshakes_ = 0;
  absl::Mutex mutex_;
  absl::flat_hash_map<int, Connection> connections_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, GuardPointer> by_peer_
      ABSL_GUARDED_BY(mutex_);
};

// The connection that this thread hands over to gRPC.
thread_local GuardPointer handed_over;

void FreeGuard(void*, void* guard, CRYPTO_EX_DATA*, int, long, void*) {
  delete static_cast<GuardPointer*>(guard);
}

int GuardIndex() {
  static const int index =
      SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, &FreeGuard);
  return index;
}

// Null if the SSL object does not belong to one of the server's connections.
FrameGuard* FindGuard(SSL* ssl) {
  auto* const guard =
      static_cast<GuardPointer*>(SSL_get_ex_data(ssl, GuardIndex()));
  return guard == nullptr ? nullptr : guard->get();
}

std::shared_ptr<void> CountCall(absl::string_view peer,
                                void (FrameGuard::*add)(int)) {
  const GuardPointer guard = Connections::Get().FindPeer(peer);
  if (guard == nullptr) return nullptr;
  (*guard.*add)(1);
  return {nullptr, [guard, add](void*) { (*guard.*add)(-1); }};
}

}  // namespace

uint64_t SocketCookie(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0) return 0;
  return cookie;
}

void GuardConnection(int fd, Encryption encryption,
                     absl::FunctionRef<void()> hand_over) {
  GuardPointer guard = Connections::Get().Add(fd, encryption);
  if (encryption == Encryption::kTls) handed_over = std::move(guard);
  hand_over();
  handed_over = nullptr;
}

void CutLateRequests(absl::Duration now) {
  static uint64_t num_cut_before = 0;
  const uint64_t num_cut = NumConnectionsCut();
  if (std::exchange(num_cut_before, num_cut) != num_cut) malloc_trim(0);
  Connections::Get().CutLate(now);
}

std::shared_ptr<void> CountPublicCall(absl::string_view peer) {
  return CountCall(peer, &FrameGuard::AddPublicCall);
}

std::shared_ptr<void> CountClientCall(absl::string_view peer) {
  return CountCall(peer, &FrameGuard::AddClientCall);
}

CallLoad& ProcessCallLoad() { return Connections::Get().load(); }

uint64_t NumConnectionsCut() { return Connections::Get().num_cut(); }

uint64_t NumFailedHandshakes() {
  return Connections::Get().num_failed_handshakes();
}

}  // namespace dcp::server

using dcp::server::Connections;
using dcp::server::FrameGuard;
using dcp::server::GuardPointer;

// The linker prescribes these names.
ABSL_ATTRIBUTE_NOINLINE ssize_t __wrap_recvmsg(int fd, msghdr* message,
                                               int flags) {
  const ssize_t received = __real_recvmsg(fd, message, flags);
  if (received <= 0 || (flags & (MSG_PEEK | MSG_ERRQUEUE)) != 0) {
    return received;
  }
  const GuardPointer guard = Connections::Get().FindPlaintext(fd);
  if (guard == nullptr) return received;
  size_t left = static_cast<size_t>(received);
  for (size_t i = 0; i < message->msg_iovlen && left > 0; ++i) {
    const iovec& part = message->msg_iov[i];
    const size_t size = std::min(left, part.iov_len);
    if (!Connections::Get().Receive(
            *guard, {static_cast<const char*>(part.iov_base), size})) {
      errno = ECONNRESET;
      return -1;
    }
    left -= size;
  }
  return received;
}

ABSL_ATTRIBUTE_NOINLINE ssize_t __wrap_sendmsg(int fd, const msghdr* message,
                                               int flags) {
  const GuardPointer guard = Connections::Get().FindPlaintext(fd);
  const auto send = [&] { return __real_sendmsg(fd, message, flags); };
  return guard == nullptr ? send() : guard->Send(*message, send);
}

ABSL_ATTRIBUTE_NOINLINE int __wrap_close(int fd) {
  Connections::Get().Forget(fd);
  return __real_close(fd);
}

ABSL_ATTRIBUTE_NOINLINE SSL* __wrap_SSL_new(SSL_CTX* context) {
  SSL* const ssl = __real_SSL_new(context);
  if (ssl == nullptr || dcp::server::handed_over == nullptr) return ssl;
  auto guard = std::make_unique<GuardPointer>(dcp::server::handed_over);
  if (SSL_set_ex_data(ssl, dcp::server::GuardIndex(), guard.get()) == 1) {
    guard.release();
    return ssl;
  }
  SSL_free(ssl);
  return nullptr;
}

ABSL_ATTRIBUTE_NOINLINE int __wrap_SSL_read(SSL* ssl, void* bytes, int size) {
  const int length = __real_SSL_read(ssl, bytes, size);
  FrameGuard* const guard = dcp::server::FindGuard(ssl);
  if (length <= 0 || guard == nullptr) return length;
  if (Connections::Get().Receive(*guard, {static_cast<const char*>(bytes),
                                          static_cast<size_t>(length)})) {
    return length;
  }
  // Makes SSL_get_error return SSL_ERROR_SSL.
  ERR_raise(ERR_LIB_USER, ERR_R_PASSED_INVALID_ARGUMENT);
  return -1;
}

ABSL_ATTRIBUTE_NOINLINE int __wrap_SSL_write(SSL* ssl, const void* bytes,
                                             int size) {
  FrameGuard* const guard = dcp::server::FindGuard(ssl);
  const auto write = [&] { return __real_SSL_write(ssl, bytes, size); };
  if (guard == nullptr || size <= 0) return write();
  iovec part = {const_cast<void*>(bytes), static_cast<size_t>(size)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  return static_cast<int>(
      guard->Send(message, [&] { return ssize_t{write()}; }));
}
