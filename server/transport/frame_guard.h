// SPDX-License-Identifier: Apache-2.0
// FrameGuard: reads the bytes of one HTTP/2 connection in both directions and
// detects clients that would harm gRPC 1.51: headers that never end
// (CONTINUATION), calls that are reset as soon as they have begun, floods of
// control frames, more calls than the server can complete, and requests that
// never become complete. It looks at the nine-byte head of each frame, and
// keeps a few bytes for each open call. Thread-safe.
//
// A call is open from the client's headers until the server has sent the last
// frame, or one side has reset it. The request takes gRPC's memory until it is
// complete and the server has begun to answer; see CallLoad.
#ifndef SERVER_TRANSPORT_FRAME_GUARD_H_
#define SERVER_TRANSPORT_FRAME_GUARD_H_

#include <sys/socket.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/process/token_bucket.h"
#include "server/transport/call_load.h"
#include "server/transport/frame_splitter.h"

namespace dcp::server {

// One call's headers, as they are sent; gRPC itself accepts 16 KiB of metadata.
inline constexpr uint64_t kMaxHeaderBytes = uint64_t{64} << 10;
inline constexpr uint64_t kMaxHeaderFrames = 32;
// RST_STREAM frames. Allows a client to abandon all calls at once and stay
// connected.
inline constexpr TokenBucket::Limits kMaxResets = {.burst = 2000,
                                                   .per_second = 50};
// SETTINGS, PING, PRIORITY and frames without content.
inline constexpr TokenBucket::Limits kMaxControlFrames = {.burst = 1000,
                                                          .per_second = 100};
// New calls on one connection while the server holds more calls than it may:
// connections that begin many are ended.
inline constexpr TokenBucket::Limits kMaxCallsUnderLoad = {.burst = 100,
                                                           .per_second = 10};

class FrameGuard {
 public:
  // `load` is shared by all connections and outlives this.
  explicit FrameGuard(CallLoad& load) : load_(load) {}
  ~FrameGuard() { Forget(); }
  FrameGuard(const FrameGuard&) = delete;
  FrameGuard& operator=(const FrameGuard&) = delete;

  // Reads the client's next bytes, which arrived at `now`. Returns false once
  // the connection is to be ended.
  bool Receive(absl::string_view bytes, absl::Duration now);

  // Calls `send`, which returns how many bytes from the parts of `message` it
  // has sent to the client, reads these, and returns the same number. The
  // client's answer to them is not read before this returns.
  ssize_t Send(const msghdr& message, absl::FunctionRef<ssize_t()> send);

  // Counts one more or one less call among those that anybody may make and keep
  // open.
  void AddPublicCall(int number);

  // Counts one more or one less of the calls whose client has a valid token.
  // A connection with such calls may begin more under load: the limits of its
  // client apply.
  void AddClientCall(int number) { num_client_calls_ += number; }
  bool has_client_call() const { return num_client_calls_ > 0; }

  // Ends the connection for a reason outside its bytes, and forgets the calls.
  // Returns false if it has a complaint already.
  bool Cut(absl::string_view why);

  // Why the connection is to be ended; empty while it may continue.
  std::string complaint() const;
  // Whether the client has sent any byte.
  bool has_received() const { return has_received_; }
  // The estimate for gRPC's memory for this connection's requests.
  int64_t request_bytes() const { return request_bytes_; }
  // Whether it has a request that is incomplete for longer than
  // kMaxRequestTime.
  bool IsLate(absl::Duration now) const;

 private:
  struct OpenCall {
    absl::Duration begun;
    int64_t bytes = 0;
    bool complete = false;  // the request is complete
    bool answered = false;
  };

  bool Begin(const FrameHead& frame, absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(const FrameHead& frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Sent(const FrameHead& frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckRate(const FrameHead& frame, absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckHeaders(const FrameHead& frame)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginCall(const FrameHead& frame, absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  OpenCall* Find(uint32_t stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds to the memory of a request that is not both complete and answered.
  void Add(OpenCall& call, int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Subtracts the memory of a request that is both.
  void ReleaseIfDone(OpenCall& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Close(uint32_t stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Count(int64_t bytes);
  void Forget();

  CallLoad& load_;
  TokenBucket resets_{kMaxResets};
  TokenBucket calls_under_load_{kMaxCallsUnderLoad};
  TokenBucket control_frames_{kMaxControlFrames};
  std::atomic<bool> has_received_ = false;
  std::atomic<int64_t> request_bytes_ = 0;
  std::atomic<int> num_client_calls_ = 0;
  mutable absl::Mutex mutex_;
  // A client begins with "PRI * HTTP/2.0...", which is not a frame.
  FrameSplitter received_ ABSL_GUARDED_BY(mutex_){24};
  FrameSplitter sent_ ABSL_GUARDED_BY(mutex_){0};
  absl::flat_hash_map<uint32_t, OpenCall> calls_ ABSL_GUARDED_BY(mutex_);
  uint32_t last_stream_ ABSL_GUARDED_BY(mutex_) = 0;
  // The bytes in the headers in progress.
  uint64_t block_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t block_frames_ ABSL_GUARDED_BY(mutex_) = 0;
  bool block_ends_stream_ ABSL_GUARDED_BY(mutex_) = false;
  std::string complaint_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp::server

#endif  // SERVER_TRANSPORT_FRAME_GUARD_H_
