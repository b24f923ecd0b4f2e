// SPDX-License-Identifier: Apache-2.0

#include "server/transport/frame_guard.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace dcp::server {
namespace {

// Frames that a well-behaved client rarely sends and that the server has to
// answer or remember.
bool IsControl(const FrameHead& frame) {
  switch (frame.type) {
    case FrameHead::kData:
      return frame.length == 0 && !frame.Has(FrameHead::kEndStream);
    case FrameHead::kSettings:
    case FrameHead::kPing:
      return !frame.Has(FrameHead::kAck);
    case FrameHead::kHeaders:
    case FrameHead::kResetStream:
    case FrameHead::kWindowUpdate:
    case FrameHead::kContinuation:
      return false;
    default:
      return true;
  }
}

}  // namespace

bool FrameGuard::Receive(absl::string_view bytes, absl::Duration now) {
  has_received_ = true;
  absl::MutexLock lock(&mutex_);
  if (!complaint_.empty()) return false;
  received_.Read(
      bytes,
      [this, now](const FrameHead& frame) {
        mutex_.AssertHeld();
        return Begin(frame, now);
      },
      [this](const FrameHead& frame) {
        mutex_.AssertHeld();
        End(frame);
      });
  return complaint_.empty();
}

bool FrameGuard::Begin(const FrameHead& frame, absl::Duration now) {
  CheckRate(frame, now);
  if (frame.type == FrameHead::kHeaders) {
    block_bytes_ = block_frames_ = 0;
    block_ends_stream_ = frame.Has(FrameHead::kEndStream);
    BeginCall(frame, now);
  }
  if (frame.type == FrameHead::kHeaders ||
      frame.type == FrameHead::kContinuation) {
    CheckHeaders(frame);
  }
  OpenCall* const call = Find(frame.stream);
  if (call == nullptr) return complaint_.empty();
  if (frame.type == FrameHead::kData) {
    Add(*call, static_cast<int64_t>(frame.length) + kReadPieceBytes);
  } else if (frame.type == FrameHead::kHeaders ||
             frame.type == FrameHead::kContinuation) {
    Add(*call, static_cast<int64_t>(frame.length));
  }
  return complaint_.empty();
}

// A request is complete only when the last frame's payload has arrived.
void FrameGuard::End(const FrameHead& frame) {
  if (frame.type == FrameHead::kResetStream) return Close(frame.stream);
  OpenCall* const call = Find(frame.stream);
  if (call == nullptr) return;
  const bool ends_headers = (frame.type == FrameHead::kHeaders ||
                             frame.type == FrameHead::kContinuation) &&
                            frame.Has(FrameHead::kEndHeaders);
  const bool ends_data =
      frame.type == FrameHead::kData && frame.Has(FrameHead::kEndStream);
  if (!ends_data && !(ends_headers && block_ends_stream_)) return;
  call->complete = true;
  ReleaseIfDone(*call);
}

void FrameGuard::CheckRate(const FrameHead& frame, absl::Duration now) {
  if (frame.type == FrameHead::kResetStream) {
    if (resets_.Take(now)) return;
    complaint_ = absl::StrCat("more than ", kMaxResets.per_second,
                              " calls were reset in a second");
  } else if (IsControl(frame) && !control_frames_.Take(now)) {
    complaint_ = absl::StrCat("more than ", kMaxControlFrames.per_second,
                              " control frames, such as of type ", frame.type,
                              ", in a second");
  }
}

void FrameGuard::CheckHeaders(const FrameHead& frame) {
  block_bytes_ += frame.length;
  ++block_frames_;
  if (block_bytes_ > kMaxHeaderBytes) {
    complaint_ = absl::StrCat("headers of ", block_bytes_, " bytes exceed ",
                              kMaxHeaderBytes);
  } else if (block_frames_ > kMaxHeaderFrames) {
    complaint_ = absl::StrCat("headers in ", block_frames_, " frames exceed ",
                              kMaxHeaderFrames);
  }
}

// gRPC ignores calls with an even number or one that is not new.
void FrameGuard::BeginCall(const FrameHead& frame, absl::Duration now) {
  if (frame.stream % 2 == 0 || frame.stream <= last_stream_) return;
  last_stream_ = frame.stream;
  OpenCall& call = calls_[frame.stream];
  call.begun = now;
  ++load_.num_open;
  Add(call, kCallBytes);
  const bool few = calls_under_load_.Take(now);
  if (!few && !has_client_call() && load_.HasTooManyCalls()) {
    complaint_ =
        absl::StrCat("the server holds more than ", load_.max_calls.load(),
                     " calls, and this connection begins more than ",
                     kMaxCallsUnderLoad.per_second, " in a second");
  } else if (static_cast<int64_t>(calls_.size()) >
             load_.max_open_per_connection) {
    complaint_ =
        absl::StrCat("it has more than ", load_.max_open_per_connection.load(),
                     " calls at once, the most of a connection");
  }
}

ssize_t FrameGuard::Send(const msghdr& message,
                         absl::FunctionRef<ssize_t()> send) {
  absl::MutexLock lock(&mutex_);
  const ssize_t sent = send();
  size_t length = sent > 0 ? static_cast<size_t>(sent) : 0;
  for (size_t i = 0; i < message.msg_iovlen && length > 0; ++i) {
    const iovec& part = message.msg_iov[i];
    const size_t size = std::min(length, part.iov_len);
    sent_.Read(
        {static_cast<const char*>(part.iov_base), size},
        [](const FrameHead&) { return true; },
        [this](const FrameHead& frame) {
          mutex_.AssertHeld();
          Sent(frame);
        });
    length -= size;
  }
  return sent;
}

void FrameGuard::Sent(const FrameHead& frame) {
  const bool answers = frame.type == FrameHead::kHeaders;
  if (frame.type == FrameHead::kResetStream ||
      (answers && frame.Has(FrameHead::kEndStream))) {
    return Close(frame.stream);
  }
  OpenCall* const call = answers ? Find(frame.stream) : nullptr;
  if (call == nullptr) return;
  call->answered = true;
  ReleaseIfDone(*call);
}

FrameGuard::OpenCall* FrameGuard::Find(uint32_t stream) {
  const auto found = calls_.find(stream);
  return found == calls_.end() ? nullptr : &found->second;
}

void FrameGuard::Add(OpenCall& call, int64_t bytes) {
  if (call.complete && call.answered) return;
  call.bytes += bytes;
  Count(bytes);
}

void FrameGuard::ReleaseIfDone(OpenCall& call) {
  if (!call.complete || !call.answered) return;
  Count(-call.bytes);
  call.bytes = 0;
}

void FrameGuard::Close(uint32_t stream) {
  const auto found = calls_.find(stream);
  if (found == calls_.end()) return;
  Count(-found->second.bytes);
  calls_.erase(found);
  --load_.num_open;
}

void FrameGuard::Count(int64_t bytes) {
  request_bytes_ += bytes;
  load_.request_bytes += bytes;
}

void FrameGuard::AddPublicCall(int number) {
  absl::MutexLock lock(&mutex_);
  if (complaint_.empty()) Count(number * kCallBytes);
}

bool FrameGuard::Cut(absl::string_view why) {
  {
    absl::MutexLock lock(&mutex_);
    if (!complaint_.empty()) return false;
    complaint_ = std::string(why);
  }
  Forget();
  return true;
}

std::string FrameGuard::complaint() const {
  absl::MutexLock lock(&mutex_);
  return complaint_;
}

bool FrameGuard::IsLate(absl::Duration now) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [stream, call] : calls_) {
    if (!call.complete && !call.answered && now - call.begun > kMaxRequestTime)
      return true;
  }
  return false;
}

void FrameGuard::Forget() {
  absl::MutexLock lock(&mutex_);
  load_.num_open -= static_cast<int64_t>(calls_.size());
  calls_.clear();
  load_.request_bytes -= request_bytes_.exchange(0);
}

}  // namespace dcp::server
