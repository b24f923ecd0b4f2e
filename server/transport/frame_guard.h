// FrameGuard: reads the bytes that a client sends on one HTTP/2 connection and
// detects what would harm gRPC 1.51: headers that never end (CONTINUATION),
// calls that are reset as soon as they have begun, more calls than the server
// can complete, and floods of control frames. It looks at the nine-byte head of
// each frame and keeps nothing else. Thread-compatible: a connection has one
// reader at a time.
#ifndef SERVER_TRANSPORT_FRAME_GUARD_H_
#define SERVER_TRANSPORT_FRAME_GUARD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/process/token_bucket.h"

namespace dcp::server {

// Headers of one call, as they are sent; gRPC itself accepts 16 KiB of
// metadata.
inline constexpr uint64_t kMaxHeaderBytes = uint64_t{64} << 10;
inline constexpr uint64_t kMaxHeaderFrames = 32;
// RST_STREAM frames. Allows a client to abandon all of its calls at once and
// stay connected.
inline constexpr TokenBucket::Limits kMaxResets = {.burst = 2000,
                                                   .per_second = 50};
// SETTINGS, PING, PRIORITY and frames without content.
inline constexpr TokenBucket::Limits kMaxControlFrames = {.burst = 1000,
                                                          .per_second = 100};
// New calls of one connection while the server holds more calls than it may:
// connections that begin many are ended.
inline constexpr TokenBucket::Limits kMaxCallsUnderLoad = {.burst = 20,
                                                           .per_second = 10};

// The number of calls that the server holds, over all connections. gRPC limits
// the calls of a connection in its SETTINGS, but a client that does not
// acknowledge these is not bound by them, and each call takes some 15 KiB.
struct CallLoad {
  std::atomic<int64_t> num_calls = 0;
  std::atomic<int64_t> max_calls = std::numeric_limits<int64_t>::max();

  bool IsTooMuch() const { return num_calls > max_calls; }
};

class FrameGuard {
 public:
  // `load` is shared by all connections and outlives this.
  explicit FrameGuard(const CallLoad& load) : load_(load) {}

  // Reads the next bytes, which arrived at `now`. Returns false once the
  // connection is to be ended.
  bool Pass(absl::string_view bytes, absl::Duration now);

  // Why the connection is to be ended; empty while it may continue.
  const std::string& complaint() const { return complaint_; }

 private:
  static constexpr size_t kFrameHeaderBytes = 9;

  void CheckFrame(absl::Duration now);
  void CheckCall(absl::Duration now);
  void CheckHeaders(uint64_t length);

  const CallLoad& load_;
  TokenBucket resets_{kMaxResets};
  TokenBucket calls_{kMaxCallsUnderLoad};
  TokenBucket control_frames_{kMaxControlFrames};
  // The preface "PRI * HTTP/2.0...", which is not a frame.
  uint64_t bytes_to_skip_ = 24;
  uint8_t header_[kFrameHeaderBytes] = {};
  size_t header_bytes_ = 0;
  uint64_t block_bytes_ = 0;  // of the headers in progress
  uint64_t block_frames_ = 0;
  std::string complaint_;
};

}  // namespace dcp::server

#endif  // SERVER_TRANSPORT_FRAME_GUARD_H_
