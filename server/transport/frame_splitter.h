// SPDX-License-Identifier: Apache-2.0
// FrameSplitter: finds HTTP/2 frames in bytes that arrive in pieces. It keeps
// the nine-byte head of one frame and no payload. Thread-compatible.
#ifndef SERVER_TRANSPORT_FRAME_SPLITTER_H_
#define SERVER_TRANSPORT_FRAME_SPLITTER_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace dcp::server {

struct FrameHead {
  enum Type : uint8_t {
    kData = 0,
    kHeaders = 1,
    kResetStream = 3,
    kSettings = 4,
    kPing = 6,
    kWindowUpdate = 8,
    kContinuation = 9,
  };
  static constexpr uint8_t kEndStream = 1;   // in kData and kHeaders
  static constexpr uint8_t kAck = 1;         // in kSettings and kPing
  static constexpr uint8_t kEndHeaders = 4;  // in kHeaders and kContinuation

  uint64_t length = 0;  // the payload's bytes
  uint8_t type = 0;
  uint8_t flags = 0;
  uint32_t stream = 0;

  bool Has(uint8_t flag) const { return (flags & flag) != 0; }
};

class FrameSplitter {
 public:
  // The bytes before the first frame: a client's preface, or none.
  explicit FrameSplitter(uint64_t preface_bytes)
      : bytes_to_skip_(preface_bytes) {}

  // Reads the next bytes. Calls `begun` for each head, before the payload, and
  // `ended` after the payload's last byte. Stops when `begun` returns false.
  void Read(absl::string_view bytes,
            absl::FunctionRef<bool(const FrameHead&)> begun,
            absl::FunctionRef<void(const FrameHead&)> ended);

 private:
  static constexpr size_t kHeadBytes = 9;

  FrameHead Head() const;

  uint64_t bytes_to_skip_;
  uint8_t head_bytes_[kHeadBytes] = {};
  size_t num_head_bytes_ = 0;
  bool in_frame_ = false;
  FrameHead frame_;  // the frame in progress
};

}  // namespace dcp::server

#endif  // SERVER_TRANSPORT_FRAME_SPLITTER_H_
