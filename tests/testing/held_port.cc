// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/held_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dcp/base/check.h"

namespace dcp::testing {

HeldPort::HeldPort()
    : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, /*protocol=*/0)) {
  const int on = 1;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  DCP_CHECK(setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
            bind(fd_, generic, size) == 0 &&
            getsockname(fd_, generic, &size) == 0);
  number_ = ntohs(address.sin_port);
}

HeldPort::~HeldPort() { close(fd_); }

}  // namespace dcp::testing
