// SPDX-License-Identifier: Apache-2.0

#include "tests/client/cutting_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <list>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"

namespace dcp::client {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int PortOf(absl::string_view target) {
  int port = 0;
  DCP_CHECK(absl::SimpleAtoi(target.substr(target.rfind(':') + 1), &port));
  return port;
}

struct Connection {
  int client;
  int server;
  uint64_t answer_bytes = 0;
  bool is_open = true;
};

// Copies available bytes from one end to the other; 0 if that end has left.
uint64_t Forward(int from, int to) {
  std::array<char, 16384> buffer;
  const ssize_t n = read(from, buffer.data(), buffer.size());
  if (n <= 0) return 0;
  for (ssize_t sent = 0; sent < n;) {
    const ssize_t m = send(to, buffer.data() + sent,
                           static_cast<size_t>(n - sent), MSG_NOSIGNAL);
    if (m <= 0) return 0;
    sent += m;
  }
  return static_cast<uint64_t>(n);
}

}  // namespace

CuttingProxy::CuttingProxy(absl::string_view target, int num_cuts,
                           uint64_t cut_after_bytes)
    : target_port_(PortOf(target)),
      cut_after_bytes_(cut_after_bytes),
      num_cuts_left_(num_cuts),
      listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  DCP_CHECK(bind(listener_, generic, size) == 0 &&
            listen(listener_, SOMAXCONN) == 0 &&
            getsockname(listener_, generic, &size) == 0 &&
            pipe2(wake_, O_CLOEXEC) == 0);
  address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  thread_ = std::thread([this] { Run(); });
}

CuttingProxy::~CuttingProxy() {
  close(wake_[1]);
  thread_.join();
  close(wake_[0]);
  close(listener_);
}

void CuttingProxy::Run() {
  std::list<Connection> connections;
  while (true) {
    std::vector<pollfd> polled = {{wake_[0], POLLIN, 0},
                                  {listener_, POLLIN, 0}};
    for (const Connection& connection : connections) {
      polled.push_back({connection.client, POLLIN, 0});
      polled.push_back({connection.server, POLLIN, 0});
    }
    poll(polled.data(), polled.size(), -1);
    if (polled[0].revents != 0) break;
    size_t next = 2;
    for (Connection& connection : connections) {
      if (polled[next++].revents != 0 &&
          Forward(connection.client, connection.server) == 0) {
        connection.is_open = false;
      }
      if (polled[next++].revents != 0) {
        const uint64_t n = Forward(connection.server, connection.client);
        connection.answer_bytes += n;
        if (n == 0) connection.is_open = false;
      }
      if (num_cuts_left_ > 0 && connection.answer_bytes >= cut_after_bytes_) {
        --num_cuts_left_;
        connection.is_open = false;
      }
      if (connection.is_open) continue;
      close(connection.client);
      close(connection.server);
    }
    connections.remove_if([](const Connection& c) { return !c.is_open; });
    if (polled[1].revents == 0) continue;
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = Loopback(target_port_);
    if (connect(server, reinterpret_cast<sockaddr*>(&address),
                sizeof(address)) == 0) {
      connections.push_back({client, server});
    } else {
      close(client);
      close(server);
    }
  }
  for (const Connection& connection : connections) {
    close(connection.client);
    close(connection.server);
  }
}

}  // namespace dcp::client
