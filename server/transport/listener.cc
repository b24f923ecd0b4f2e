// SPDX-License-Identifier: Apache-2.0

#include "server/transport/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace dcp::server {
namespace {

constexpr int kBacklog = 1024;

absl::Status RefuseAddress(absl::string_view address, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("listen on ", address, ": ", why));
}

std::string Reason(int error) {
  return error == EADDRINUSE ? "it is in use" : std::strerror(error);
}

void SetOption(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof(value));
}

int NewSocket(int family) {
  return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

uint16_t BoundPort(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return 0;
  }
  return ntohs(bound.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

void SetPort(uint16_t port, sockaddr& address) {
  if (address.sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(port);
  }
}

// Whether a server listens on that unix socket.
bool IsServed(const sockaddr_un& address) {
  const int fd = NewSocket(AF_UNIX);
  if (fd < 0) return true;
  const bool refused = connect(fd, reinterpret_cast<const sockaddr*>(&address),
                               sizeof(address)) != 0 &&
                       (errno == ECONNREFUSED || errno == ENOENT);
  close(fd);
  return !refused;
}

}  // namespace

absl::StatusOr<Listener> Listener::Open(const std::string& address) {
  Listener listener(address);
  absl::string_view path = address;
  const absl::Status status = absl::ConsumePrefix(&path, "unix:")
                                  ? listener.OpenUnix(std::string(path))
                                  : listener.OpenTcp();
  if (!status.ok()) return status;
  return listener;
}

Listener::~Listener() {
  for (int fd : sockets_) close(fd);
  struct stat info;
  if (!sockets_.empty() && !unix_path_.empty() &&
      lstat(unix_path_.c_str(), &info) == 0 && info.st_dev == unix_device_ &&
      info.st_ino == unix_inode_) {
    unlink(unix_path_.c_str());
  }
}

absl::Status Listener::OpenUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  struct stat info;
  if (lstat(path.c_str(), &info) == 0) {
    if (!S_ISSOCK(info.st_mode)) {
      return RefuseAddress(address_,
                           "a file with this name exists, but is not a socket");
    }
    if (IsServed(address)) return RefuseAddress(address_, Reason(EADDRINUSE));
    unlink(path.c_str());
  }
  const int fd = NewSocket(AF_UNIX);
  if (fd < 0) return RefuseAddress(address_, Reason(errno));
  sockets_.push_back(fd);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) !=
          0 ||
      listen(fd, kBacklog) != 0 || lstat(path.c_str(), &info) != 0) {
    return RefuseAddress(address_, Reason(errno));
  }
  unix_path_ = path;
  unix_device_ = info.st_dev;
  unix_inode_ = info.st_ino;
  return absl::OkStatus();
}

absl::Status Listener::OpenTcp() {
  const size_t colon = address_.rfind(':');
  absl::string_view host = absl::string_view(address_).substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  const std::string name(host);
  const std::string service = address_.substr(colon + 1);
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int resolved =
      getaddrinfo(name.c_str(), service.c_str(), &hints, &found);
  if (resolved != 0) return RefuseAddress(address_, gai_strerror(resolved));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found,
                                                               &freeaddrinfo);
  absl::Status missing;
  uint16_t port = 0;
  for (addrinfo* one = found; one != nullptr; one = one->ai_next) {
    const int fd = NewSocket(one->ai_family);
    if (fd < 0) {  // this machine does not support IPv6
      missing = RefuseAddress(address_, Reason(errno));
      continue;
    }
    SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    // Accepted sockets inherit this option.
    SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (one->ai_family == AF_INET6) {
      // Makes [::] accept IPv4 too.
      SetOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    }
    if (port != 0) SetPort(port, *one->ai_addr);
    if (bind(fd, one->ai_addr, one->ai_addrlen) != 0 ||
        listen(fd, kBacklog) != 0) {
      const int error = errno;
      close(fd);
      missing = RefuseAddress(address_, Reason(error));
      if (error == EADDRNOTAVAIL) continue;  // no such address here, e.g. ::1
      return missing;
    }
    sockets_.push_back(fd);
    port = BoundPort(fd);
  }
  if (sockets_.empty()) return missing;
  address_ = absl::StrCat(address_.substr(0, colon + 1), port);
  return absl::OkStatus();
}

}  // namespace dcp::server
