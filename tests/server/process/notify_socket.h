// SPDX-License-Identifier: Apache-2.0
// NotifySocket: the socket of a service manager, which receives a service's
// messages. For tests; a failure that a sound test cannot have is a DCP_CHECK.
#ifndef TESTS_SERVER_PROCESS_NOTIFY_SOCKET_H_
#define TESTS_SERVER_PROCESS_NOTIFY_SOCKET_H_

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"

namespace dcp::server {

class NotifySocket {
 public:
  NotifySocket() : name_(NewName()), fd_(socket(AF_UNIX, SOCK_DGRAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name_.copy(address.sun_path, name_.size());
    address.sun_path[0] = '\0';
    DCP_CHECK(bind(fd_, reinterpret_cast<const sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) +
                                          name_.size())) == 0);
  }
  ~NotifySocket() { close(fd_); }
  NotifySocket(const NotifySocket&) = delete;
  NotifySocket& operator=(const NotifySocket&) = delete;

  // For NOTIFY_SOCKET.
  const std::string& name() const { return name_; }

  // Waits for the next message.
  std::string Receive() const { return Receive(0); }
  // The same; empty if none has come.
  std::string ReceiveIfThere() const { return Receive(MSG_DONTWAIT); }

 private:
  static std::string NewName() {
    static std::atomic<int> num_made = 0;
    return absl::StrCat("@notify_socket_", getpid(), "_", ++num_made);
  }

  std::string Receive(int flags) const {
    char bytes[64];
    const ssize_t length = recv(fd_, bytes, sizeof(bytes), flags);
    return length < 0 ? "" : std::string(bytes, static_cast<size_t>(length));
  }

  const std::string name_;
  const int fd_;
};

}  // namespace dcp::server

#endif  // TESTS_SERVER_PROCESS_NOTIFY_SOCKET_H_
