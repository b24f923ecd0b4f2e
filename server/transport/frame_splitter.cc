// SPDX-License-Identifier: Apache-2.0
// The layout of a frame (RFC 9113, section 4.1):
//
//  | length: 3 bytes | type: 1 | flags: 1 | stream: 4 | payload: length |
#include "server/transport/frame_splitter.h"

#include <algorithm>
#include <utility>

namespace dcp::server {

void FrameSplitter::Read(absl::string_view bytes,
                         absl::FunctionRef<bool(const FrameHead&)> begun,
                         absl::FunctionRef<void(const FrameHead&)> ended) {
  while (true) {
    const uint64_t skipped = std::min<uint64_t>(bytes_to_skip_, bytes.size());
    bytes.remove_prefix(skipped);
    bytes_to_skip_ -= skipped;
    if (bytes_to_skip_ > 0) return;
    if (std::exchange(in_frame_, false)) ended(frame_);
    const size_t length = std::min(bytes.size(), kHeadBytes - num_head_bytes_);
    std::copy_n(bytes.begin(), length, head_bytes_ + num_head_bytes_);
    bytes.remove_prefix(length);
    num_head_bytes_ += length;
    if (num_head_bytes_ < kHeadBytes) return;
    num_head_bytes_ = 0;
    frame_ = Head();
    in_frame_ = true;
    bytes_to_skip_ = frame_.length;
    if (!begun(frame_)) return;
  }
}

FrameHead FrameSplitter::Head() const {
  const auto byte = [this](size_t i) { return uint32_t{head_bytes_[i]}; };
  return {.length = uint64_t{byte(0) << 16 | byte(1) << 8 | byte(2)},
          .type = head_bytes_[3],
          .flags = head_bytes_[4],
          .stream =
              (byte(5) & 0x7F) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8)};
}

}  // namespace dcp::server
