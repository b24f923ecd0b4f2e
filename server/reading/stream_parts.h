// SPDX-License-Identifier: Apache-2.0
// The tensor parts that make up a stream: the parts that a request asks for, in
// the request's order and checked against the checkpoint, and the windows into
// which each part is cut. Pure; any thread.
#ifndef SERVER_READING_STREAM_PARTS_H_
#define SERVER_READING_STREAM_PARTS_H_

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "tessera/v1/checkpoint_service.pb.h"

namespace dcp::server {

// The most bytes in a window, the unit that is read at once and shared by
// streams. As much as one read takes (kBlockBytes).
inline constexpr uint64_t kWindowBytes = uint64_t{4} << 20;

struct StreamPart {
  std::string name;  // after renaming
  uint32_t entry = 0;
  DType dtype = DType::kFloat32;  // after the cast
  Box box;
  uint64_t begin = 0;  // byte offset in the stream
  uint64_t num_bytes = 0;
};

struct StreamParts {
  std::vector<StreamPart> parts;
  uint64_t num_bytes = 0;

  // The index of the part (not an empty one) that contains the stream's byte
  // `offset`, which is less than num_bytes.
  size_t PartAt(uint64_t offset) const;
};

// NotFound and InvalidArgument list every name that is missing, is not a
// tensor, has another shape or type, or has a box that lies outside.
// ResourceExhausted if there are more parts than a stream may have. Cancelled
// soon after a stop.
absl::StatusOr<StreamParts> ResolveParts(
    const Checkpoint& checkpoint,
    const tessera::v1::ReadTensorsRequest& request, std::stop_token stop = {});

// A part's bytes [begin, begin + num_bytes), which are the elements of `box`.
struct PartWindow {
  Box box;
  uint64_t begin = 0;
  uint64_t num_bytes = 0;
};

// The window that contains the part's byte `offset`. A part is cut along one
// dimension, at positions that depend on the tensor and not on the part, so
// that overlapping parts of one tensor share windows. A window has at most
// kWindowBytes.
PartWindow WindowAt(absl::Span<const int64_t> shape, const StreamPart& part,
                    uint64_t offset);

}  // namespace dcp::server

#endif  // SERVER_READING_STREAM_PARTS_H_
