// SPDX-License-Identifier: Apache-2.0
// A pickle's bytes. Opcodes and operands are taken from them in order. Never
// reads past the end: truncated bytes are DataLoss. Used only by the pickle
// reader; one thread.
#ifndef DCP_FORMAT_PICKLE_PICKLE_INPUT_H_
#define DCP_FORMAT_PICKLE_PICKLE_INPUT_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"

namespace dcp {

class PickleInput {
 public:
  // `bytes` must outlive the input and every text taken from it.
  explicit PickleInput(ByteSpan bytes) : bytes_(bytes) {}

  size_t at() const { return at_; }  // bytes taken so far
  size_t num_left() const { return bytes_.size() - at_; }

  // Requires that a byte is left.
  uint8_t TakeOpcode() { return bytes_[at_++]; }

  absl::Status Take(uint64_t length, absl::string_view& text) {
    if (length > num_left()) return Truncated(length);
    text = AsText(bytes_.subspan(at_, length));
    at_ += length;
    return absl::OkStatus();
  }

  // Takes a little-endian T; a negative one is extended to 64 bits.
  template <typename T>
  absl::Status TakeNumber(uint64_t& number) {
    if (num_left() < sizeof(T)) return Truncated(sizeof(T));
    number = static_cast<uint64_t>(LoadLittleEndian<T>(bytes_.data() + at_));
    at_ += sizeof(T);
    return absl::OkStatus();
  }

  // Takes the text up to the next newline, and the newline.
  absl::Status TakeLine(absl::string_view& line);

 private:
  absl::Status Truncated(uint64_t num_expected) const;

  ByteSpan bytes_;
  size_t at_ = 0;
};

}  // namespace dcp

#endif  // DCP_FORMAT_PICKLE_PICKLE_INPUT_H_
