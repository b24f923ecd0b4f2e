// SPDX-License-Identifier: Apache-2.0
// TensorLayout: the parts that a ReadTensors stream delivers and the memory for
// them. TensorRange: a range of these bytes that one stream reads. Both check
// each message from the server against earlier ones and do not trust it:
// nothing is written outside the caller's memory. Thread-compatible; different
// threads may fill ranges that do not overlap.
#ifndef CLIENT_TENSOR_LAYOUT_H_
#define CLIENT_TENSOR_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/received_chunk.h"
#include "tessera/v1/checkpoint_service.pb.h"

namespace dcp::client {

using TensorPart = tessera::v1::ReadTensorsResponse::Header::Part;

// Returns the caller's memory for a part, of exactly part.num_bytes(), or an
// error.
using AllocatePart = absl::FunctionRef<absl::StatusOr<std::span<uint8_t>>(
    size_t index, const TensorPart& part)>;

class TensorLayout {
 public:
  using Header = tessera::v1::ReadTensorsResponse::Header;

  // A header may come in several messages. DataLoss if they contradict each
  // other.
  absl::Status Add(const Header& header);
  // Whether the last message of the header was added.
  bool complete() const { return complete_; }
  absl::Status Allocate(AllocatePart allocate);

  const std::string& etag() const { return etag_; }
  uint64_t num_bytes() const { return num_bytes_; }
  const std::vector<TensorPart>& parts() const { return parts_; }

 private:
  friend class TensorRange;

  bool started_ = false;
  bool complete_ = false;
  std::string etag_;
  uint64_t num_bytes_ = 0;
  std::vector<TensorPart> parts_;
  std::vector<uint64_t> begins_;  // of each part, then the end of all
  std::vector<std::span<uint8_t>> destinations_;
};

// Bytes [position, end) of a layout that are still to come.
class TensorRange {
 public:
  TensorRange(uint64_t begin, uint64_t end) : position_(begin), end_(end) {}

  // Checks that the chunk is the next one and copies the bytes that belong to
  // the range. DataLoss names tensor and offset if it is another chunk or the
  // checksum is wrong.
  absl::Status Place(const ReceivedChunk& chunk, const TensorLayout& layout);

  uint64_t position() const { return position_; }
  uint64_t end() const { return end_; }
  bool done() const { return position_ == end_; }

 private:
  uint64_t position_;
  uint64_t end_;
};

}  // namespace dcp::client

#endif  // CLIENT_TENSOR_LAYOUT_H_
