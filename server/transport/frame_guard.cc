// The layout of a frame (RFC 9113, section 4.1):
//
//  | length: 3 bytes | type: 1 | flags: 1 | stream: 4 | payload: length |
#include "server/transport/frame_guard.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace dcp::server {
namespace {

enum FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kResetStream = 3,
  kSettings = 4,
  kPushPromise = 5,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};

constexpr uint8_t kEndStream = 1;  // for kData
constexpr uint8_t kAck = 1;        // for kSettings and kPing

// Frames that a well-behaved client rarely sends and that the server has to
// answer or remember.
bool IsControl(uint8_t type, uint8_t flags, uint64_t length) {
  switch (type) {
    case kData:
      return length == 0 && (flags & kEndStream) == 0;
    case kSettings:
    case kPing:
      return (flags & kAck) == 0;
    case kHeaders:
    case kResetStream:
    case kWindowUpdate:
    case kContinuation:
      return false;
    default:
      return true;
  }
}

}  // namespace

bool FrameGuard::Pass(absl::string_view bytes, absl::Duration now) {
  while (!bytes.empty() && complaint_.empty()) {
    if (bytes_to_skip_ > 0) {
      const uint64_t skipped = std::min<uint64_t>(bytes_to_skip_, bytes.size());
      bytes.remove_prefix(skipped);
      bytes_to_skip_ -= skipped;
      continue;
    }
    const size_t length =
        std::min(bytes.size(), kFrameHeaderBytes - header_bytes_);
    std::copy_n(bytes.begin(), length, header_ + header_bytes_);
    bytes.remove_prefix(length);
    header_bytes_ += length;
    if (header_bytes_ == kFrameHeaderBytes) CheckFrame(now);
  }
  return complaint_.empty();
}

void FrameGuard::CheckFrame(absl::Duration now) {
  const uint64_t length = uint64_t{header_[0]} << 16 |
                          uint64_t{header_[1]} << 8 | uint64_t{header_[2]};
  const uint8_t type = header_[3];
  header_bytes_ = 0;
  bytes_to_skip_ = length;
  if (type == kHeaders) {
    block_bytes_ = block_frames_ = 0;
    CheckHeaders(length);
    CheckCall(now);
  } else if (type == kContinuation) {
    CheckHeaders(length);
  } else if (type == kResetStream) {
    if (!resets_.Take(now)) {
      complaint_ = absl::StrCat("more than ", kMaxResets.per_second,
                                " calls were reset in a second");
    }
  } else if (IsControl(type, header_[4], length) &&
             !control_frames_.Take(now)) {
    complaint_ = absl::StrCat("more than ", kMaxControlFrames.per_second,
                              " control frames, such as of type ", type,
                              ", in a second");
  }
}

void FrameGuard::CheckCall(absl::Duration now) {
  const bool few = calls_.Take(now);
  if (few || !load_.IsTooMuch()) return;
  complaint_ =
      absl::StrCat("the server holds more than ", load_.max_calls.load(),
                   " calls, and this connection begins more than ",
                   kMaxCallsUnderLoad.per_second, " in a second");
}

void FrameGuard::CheckHeaders(uint64_t length) {
  block_bytes_ += length;
  ++block_frames_;
  if (block_bytes_ > kMaxHeaderBytes) {
    complaint_ = absl::StrCat("headers of ", block_bytes_, " bytes exceed ",
                              kMaxHeaderBytes);
  } else if (block_frames_ > kMaxHeaderFrames) {
    complaint_ = absl::StrCat("headers in ", block_frames_, " frames exceed ",
                              kMaxHeaderFrames);
  }
}

}  // namespace dcp::server
