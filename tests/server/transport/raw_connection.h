// SPDX-License-Identifier: Apache-2.0
// RawConnection: a client that writes HTTP/2 frames itself (RFC 9113), to send
// frames that no library would. Blocks; one thread.
#ifndef TESTS_SERVER_TRANSPORT_RAW_CONNECTION_H_
#define TESTS_SERVER_TRANSPORT_RAW_CONNECTION_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

typedef struct ssl_st SSL;
typedef struct ssl_ctx_st SSL_CTX;

namespace dcp::server {

enum FrameType : uint8_t {
  kDataFrame = 0,
  kHeadersFrame = 1,
  kResetFrame = 3,
  kSettingsFrame = 4,
  kPingFrame = 6,
  kContinuationFrame = 9,
};
inline constexpr uint8_t kEndStream = 1;
inline constexpr uint8_t kEndHeaders = 4;

std::string Frame(FrameType type, uint8_t flags, uint32_t stream,
                  absl::string_view payload);
// A call's headers, "/package.Service/Method", compressed as HPACK.
std::string CallHeaders(absl::string_view method);
// The beginning of a connection.
std::string Preface();

class RawConnection {
 public:
  // Connects to 127.0.0.1 at the port in "address:port"; with `tls`, accepts
  // any server certificate. If that fails, it is not connected.
  explicit RawConnection(absl::string_view address, bool tls = false);
  ~RawConnection();
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  bool is_connected() const { return fd_ >= 0; }
  // False once the server has closed the connection, or accepts nothing for a
  // second.
  bool Send(absl::string_view bytes);
  // Reads everything that has arrived, at most 64 KiB, without waiting; false
  // at the end of the connection.
  bool Drain();
  // Reads until the server has ended the call `stream`; false if the connection
  // ends first, or after a minute.
  bool WaitForAnswer(uint32_t stream);
  // Reads until the server closes the connection; false after a minute.
  bool WaitForEnd();

 private:
  // Like read and write; with or without TLS.
  int Read(char* bytes, int size);
  int Write(const char* bytes, int size);

  int fd_ = -1;
  SSL_CTX* context_ = nullptr;
  SSL* ssl_ = nullptr;
};

}  // namespace dcp::server

#endif  // TESTS_SERVER_TRANSPORT_RAW_CONNECTION_H_
