// SPDX-License-Identifier: Apache-2.0
// HeldBackStream: passes on a stream of known length, except for the last
// bytes, which follow when Finish is called. A reader that has only the bytes
// before them knows that the stream is incomplete, because both formats that
// can be streamed say where they end. One thread at a time.
#ifndef DCP_CHECKPOINT_CONVERT_HELD_BACK_STREAM_H_
#define DCP_CHECKPOINT_CONVERT_HELD_BACK_STREAM_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "dcp/base/bytes.h"
#include "dcp/checkpoint/write/byte_stream.h"

namespace dcp {

class HeldBackStream {
 public:
  // `stream` outlives this.
  HeldBackStream(ByteStream& stream, uint64_t num_bytes)
      : stream_(stream), first_held_(num_bytes - std::min(num_bytes, kHeld)) {}

  absl::Status Take(ByteSpan bytes) {
    const uint64_t pass =
        std::min<uint64_t>(bytes.size(), first_held_ - passed_);
    passed_ += pass;
    held_.insert(held_.end(), bytes.begin() + static_cast<ptrdiff_t>(pass),
                 bytes.end());
    return pass == 0 ? absl::OkStatus() : stream_(bytes.first(pass));
  }

  absl::Status Finish() { return stream_(held_); }

 private:
  static constexpr uint64_t kHeld = 4096;

  ByteStream& stream_;
  const uint64_t first_held_;  // as an offset
  uint64_t passed_ = 0;
  std::vector<uint8_t> held_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_HELD_BACK_STREAM_H_
