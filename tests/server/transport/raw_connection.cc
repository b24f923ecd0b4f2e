// SPDX-License-Identifier: Apache-2.0

#include "tests/server/transport/raw_connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"

namespace dcp::server {
namespace {

constexpr int kPatienceMs = 60'000;

char Byte(uint64_t value) { return static_cast<char>(value & 0xff); }

// A header with a name from HPACK's static table, RFC 7541 appendix A.
std::string NamedHeader(std::string name, absl::string_view value) {
  DCP_CHECK(value.size() < 127);
  return absl::StrCat(name, std::string(1, Byte(value.size())), value);
}

}  // namespace

std::string Frame(FrameType type, uint8_t flags, uint32_t stream,
                  absl::string_view payload) {
  const uint64_t length = payload.size();
  const char header[] = {
      Byte(length >> 16), Byte(length >> 8), Byte(length),
      Byte(type),         Byte(flags),       Byte(stream >> 24),
      Byte(stream >> 16), Byte(stream >> 8), Byte(stream)};
  return absl::StrCat(absl::string_view(header, sizeof(header)), payload);
}

std::string CallHeaders(absl::string_view method) {
  return absl::StrCat(
      "\x83\x86",                        // :method POST, :scheme http
      NamedHeader("\x04", method),       // :path
      NamedHeader("\x01", "localhost"),  // :authority
      NamedHeader("\x0f\x10", "application/grpc"),  // content-type
      std::string("\x00\x02te", 4), NamedHeader("", "trailers"));
}

std::string Preface() {
  return absl::StrCat("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                      Frame(kSettingsFrame, 0, 0, ""));
}

RawConnection::RawConnection(absl::string_view address, bool tls) {
  sockaddr_in server{};
  server.sin_family = AF_INET;
  server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  uint32_t port = 0;
  DCP_CHECK(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  server.sin_port = htons(static_cast<uint16_t>(port));
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  DCP_CHECK(fd_ >= 0);
  const timeval second = {.tv_sec = 1, .tv_usec = 0};
  setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof(second));
  bool connected = connect(fd_, reinterpret_cast<const sockaddr*>(&server),
                           sizeof(server)) == 0;
  if (connected && tls) {
    // OpenSSL writes to a closed connection without MSG_NOSIGNAL.
    std::signal(SIGPIPE, SIG_IGN);
    static constexpr unsigned char kH2[] = {2, 'h', '2'};
    context_ = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_alpn_protos(context_, kH2, sizeof(kH2));
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, fd_);
    connected = SSL_connect(ssl_) == 1;
  }
  if (!connected) {
    close(fd_);
    fd_ = -1;
  }
}

RawConnection::~RawConnection() {
  SSL_free(ssl_);
  SSL_CTX_free(context_);
  if (fd_ >= 0) close(fd_);
}

int RawConnection::Read(char* bytes, int size) {
  return ssl_ != nullptr
             ? SSL_read(ssl_, bytes, size)
             : static_cast<int>(recv(fd_, bytes, static_cast<size_t>(size), 0));
}

int RawConnection::Write(const char* bytes, int size) {
  return ssl_ != nullptr
             ? SSL_write(ssl_, bytes, size)
             : static_cast<int>(
                   send(fd_, bytes, static_cast<size_t>(size), MSG_NOSIGNAL));
}

bool RawConnection::Send(absl::string_view bytes) {
  while (is_connected() && !bytes.empty()) {
    const int sent = Write(bytes.data(), static_cast<int>(bytes.size()));
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return is_connected();
}

bool RawConnection::Drain() {
  pollfd readable = {.fd = fd_, .events = POLLIN, .revents = 0};
  if (!is_connected()) return false;
  if (poll(&readable, 1, 0) != 1) return true;
  char bytes[64 << 10];
  return Read(bytes, sizeof(bytes)) > 0;
}

bool RawConnection::WaitForAnswer(uint32_t stream) {
  pollfd readable = {.fd = fd_, .events = POLLIN, .revents = 0};
  std::string received;
  while (is_connected() && ((ssl_ != nullptr && SSL_pending(ssl_) > 0) ||
                            poll(&readable, 1, kPatienceMs) == 1)) {
    char bytes[4096];
    const int length = Read(bytes, sizeof(bytes));
    if (length <= 0) return false;
    received.append(bytes, static_cast<size_t>(length));
    while (received.size() >= 9) {
      const auto byte = [&](size_t i) {
        return uint32_t{static_cast<uint8_t>(received[i])};
      };
      const size_t size = 9 + (byte(0) << 16 | byte(1) << 8 | byte(2));
      if (received.size() < size) break;
      const bool ends = byte(3) == kResetFrame || (byte(3) == kHeadersFrame &&
                                                   (byte(4) & kEndStream) != 0);
      const uint32_t of =
          byte(5) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8);
      if (ends && of == stream) return true;
      received.erase(0, size);
    }
  }
  return false;
}

bool RawConnection::WaitForEnd() {
  pollfd readable = {.fd = fd_, .events = POLLIN, .revents = 0};
  while (is_connected() && poll(&readable, 1, kPatienceMs) == 1) {
    char bytes[4096];
    if (Read(bytes, sizeof(bytes)) <= 0) return true;
  }
  return !is_connected();
}

}  // namespace dcp::server
