// FrameGuard: reads along what a client sends on one HTTP/2 connection and
// tells when it goes beyond what gRPC 1.51 takes without harm: headers that
// never end (CONTINUATION), calls that are reset as soon as they have begun,
// more calls than the server gets done, and floods of control frames. It looks
// at the nine bytes that begin each frame and keeps nothing else.
// Thread-compatible: a connection has one reader at a time.
#ifndef SERVER_FRAME_GUARD_H_
#define SERVER_FRAME_GUARD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/token_bucket.h"

namespace dcp::server {

// Of one call, as they are sent; gRPC itself takes 16 KiB of metadata.
inline constexpr uint64_t kMaxHeaderBytes = uint64_t{64} << 10;
inline constexpr uint64_t kMaxHeaderFrames = 32;
// RST_STREAM: a client that leaves all of its calls at once, and stays.
inline constexpr TokenBucket::Limits kMaxResets = {.burst = 2000,
                                                   .per_second = 50};
// SETTINGS, PING, PRIORITY and frames that carry nothing.
inline constexpr TokenBucket::Limits kMaxControlFrames = {.burst = 1000,
                                                          .per_second = 100};
// Calls, while the server holds more of them than it may: those connections end
// that go on beginning many.
inline constexpr TokenBucket::Limits kMaxCallsUnderLoad = {.burst = 20,
                                                           .per_second = 10};

// The calls that the server holds, of all connections. A client that does not
// acknowledge gRPC's SETTINGS is not bound by what they say about calls at a
// time; each call is some 15 KiB.
struct CallLoad {
  std::atomic<int64_t> num_calls = 0;
  std::atomic<int64_t> max_calls = std::numeric_limits<int64_t>::max();

  bool IsTooMuch() const { return num_calls > max_calls; }
};

class FrameGuard {
 public:
  // `load` is shared by the connections and outlives them.
  explicit FrameGuard(const CallLoad& load) : load_(load) {}

  // The next bytes, at this time. False once the connection is to end.
  bool Pass(absl::string_view bytes, absl::Duration now);

  // Why it is to end; empty while it may go on.
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
  // "PRI * HTTP/2.0...", which is not a frame.
  uint64_t bytes_to_skip_ = 24;
  uint8_t header_[kFrameHeaderBytes] = {};
  size_t header_bytes_ = 0;
  uint64_t block_bytes_ = 0;  // of the headers that are being sent
  uint64_t block_frames_ = 0;
  std::string complaint_;
};

}  // namespace dcp::server

#endif  // SERVER_FRAME_GUARD_H_
