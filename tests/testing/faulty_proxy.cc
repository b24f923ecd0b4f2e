// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/faulty_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"

namespace dcp::testing {
namespace {

constexpr absl::string_view kEndOfHead = "\r\n\r\n";

int ParsePort(absl::string_view endpoint) {
  int port = 0;
  DCP_CHECK(absl::SimpleAtoi(endpoint.substr(endpoint.rfind(':') + 1), &port));
  return port;
}

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Waits until `fd` has bytes or was closed; false if `wake` was closed.
bool WaitFor(int fd, int wake) {
  pollfd polled[] = {{fd, POLLIN, 0}, {wake, POLLIN, 0}};
  poll(polled, 2, -1);
  return polled[1].revents == 0;
}

// Appends the bytes that are there; false at the end, or when the proxy ends.
bool ReadMore(int fd, int wake, std::string& text) {
  char buffer[65536];
  if (!WaitFor(fd, wake)) return false;
  const ssize_t n = read(fd, buffer, sizeof(buffer));
  if (n <= 0) return false;
  text.append(buffer, static_cast<size_t>(n));
  return true;
}

void Send(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t n = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

size_t ContentLength(absl::string_view head) {
  const std::string lower = absl::AsciiStrToLower(head);
  const size_t at = lower.find("\r\ncontent-length:");
  if (at == std::string::npos) return 0;
  const size_t begin = lower.find(':', at) + 1;
  size_t length = 0;
  DCP_CHECK(absl::SimpleAtoi(
      lower.substr(begin, lower.find("\r\n", begin) - begin), &length));
  return length;
}

// The server's whole answer to `head` and `body`.
std::string Ask(int port, int wake, absl::string_view head,
                absl::string_view body) {
  const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(port);
  std::string answer;
  if (connect(server, reinterpret_cast<const sockaddr*>(&address),
              sizeof(address)) == 0) {
    Send(server, absl::StrCat(head.substr(0, head.size() - 2),
                              "Connection: close\r\n\r\n", body));
    while (ReadMore(server, wake, answer)) {
    }
  }
  close(server);
  return answer;
}

}  // namespace

FaultyProxy::FaultyProxy(absl::string_view endpoint, Faults faults)
    : faults_(std::move(faults)),
      server_port_(ParsePort(endpoint)),
      listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  DCP_CHECK(bind(listener_, generic, size) == 0 &&
            listen(listener_, SOMAXCONN) == 0 &&
            getsockname(listener_, generic, &size) == 0 &&
            pipe2(wake_, O_CLOEXEC) == 0);
  endpoint_ = absl::StrCat("http://127.0.0.1:", ntohs(address.sin_port));
  thread_ = std::thread([this] { Run(); });
}

FaultyProxy::~FaultyProxy() {
  close(wake_[1]);
  thread_.join();
  close(wake_[0]);
  close(listener_);
}

void FaultyProxy::Run() {
  while (WaitFor(listener_, wake_[0])) {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    connections_.emplace_back([this, client] { Serve(client); });
  }
  for (std::thread& connection : connections_) connection.join();
}

void FaultyProxy::Serve(int client) {
  std::string request;
  size_t end = std::string::npos;
  while ((end = request.find(std::string(kEndOfHead))) == std::string::npos &&
         ReadMore(client, wake_[0], request)) {
  }
  if (end != std::string::npos) {
    end += kEndOfHead.size();
    const std::string head = request.substr(0, end);
    while (request.size() < end + ContentLength(head) &&
           ReadMore(client, wake_[0], request)) {
    }
    std::optional<std::string> answer;
    if (faults_.instead) {
      absl::MutexLock lock(&mu_);
      answer = faults_.instead(head);
    }
    if (!answer.has_value()) {
      answer = Ask(server_port_, wake_[0], head, request.substr(end));
      if (faults_.change) {
        absl::MutexLock lock(&mu_);
        answer = faults_.change(head, *answer);
      }
    }
    Send(client, *answer);
    std::string ignored;
    while (faults_.stalls && ReadMore(client, wake_[0], ignored)) {
    }
  }
  close(client);
}

std::string FaultyProxy::Answer(absl::string_view status,
                                absl::string_view body,
                                absl::string_view more_head) {
  return absl::StrCat("HTTP/1.1 ", status, "\r\nContent-Length: ", body.size(),
                      "\r\nConnection: close\r\n", more_head, "\r\n", body);
}

std::string FaultyProxy::Error(absl::string_view status,
                               absl::string_view code) {
  return Answer(
      status,
      absl::StrCat("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                   "<Error><Code>",
                   code, "</Code><Message>A fault.</Message></Error>"),
      "x-amz-request-id: fault-1\r\nContent-Type: application/xml\r\n");
}

}  // namespace dcp::testing
