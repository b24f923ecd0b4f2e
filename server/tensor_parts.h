// The parts of tensors that a stream is made of: what a request asks for, in
// its order, once it was held against the checkpoint; and the windows that each
// part is cut into. Pure; any thread.
#ifndef SERVER_TENSOR_PARTS_H_
#define SERVER_TENSOR_PARTS_H_

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/checkpoint.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "tessera/v1/checkpoint_service.pb.h"

namespace dcp::server {

// Bytes of a window: what is read at once, and shared by streams. As much as
// one read takes (kBlockBytes).
inline constexpr uint64_t kWindowBytes = uint64_t{4} << 20;

struct TensorPart {
  std::string name;  // after renaming
  uint32_t entry = 0;
  DType dtype = DType::kFloat32;  // after the cast
  Box box;
  uint64_t begin = 0;  // in the stream
  uint64_t num_bytes = 0;
};

struct TensorParts {
  std::vector<TensorPart> parts;
  uint64_t num_bytes = 0;

  // Of those that have bytes, the one that byte `offset` of the stream is in;
  // `offset` is below num_bytes.
  size_t PartAt(uint64_t offset) const;
};

// NotFound and InvalidArgument list all that is missing, no tensor, of another
// shape or type, or outside; ResourceExhausted for more parts than a stream
// takes. Cancelled soon after a stop.
absl::StatusOr<TensorParts> ResolveParts(
    const Checkpoint& checkpoint,
    const tessera::v1::ReadTensorsRequest& request, std::stop_token stop = {});

// Bytes [begin, begin + num_bytes) of a part: the elements of `box`.
struct PartWindow {
  Box box;
  uint64_t begin = 0;
  uint64_t num_bytes = 0;
};

// The window that byte `offset` of the part lies in. A part is cut along one
// dimension, at places of the tensor, not of the part: parts of one tensor that
// overlap have windows in common, whoever asks for them. A window has at most
// kWindowBytes.
PartWindow WindowAt(absl::Span<const int64_t> shape, const TensorPart& part,
                    uint64_t offset);

}  // namespace dcp::server

#endif  // SERVER_TENSOR_PARTS_H_
