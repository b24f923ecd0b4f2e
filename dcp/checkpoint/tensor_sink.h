// TensorSink: takes the payload of a tensor while it is loaded. One of the
// five interfaces; a trainer's memory implements it, on a CPU or a GPU. Called
// from one lane thread at a time.
#ifndef DCP_CHECKPOINT_TENSOR_SINK_H_
#define DCP_CHECKPOINT_TENSOR_SINK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "dcp/base/bytes.h"

namespace dcp {

class TensorSink {
 public:
  virtual ~TensorSink() = default;

  // The memory of the whole payload, row-major, where a load may write itself:
  // then every byte is written there once, from the block it was read into, and
  // neither Place nor Flush is called. Empty where there is none: a GPU's, or a
  // tensor in strides.
  virtual MutableByteSpan DirectSpan() { return {}; }

  // Begins to copy `src` to bytes [offset, offset + src.size()) of the
  // row-major payload. `src` stays valid until Flush returns. Every byte is
  // placed exactly once.
  virtual absl::Status Place(uint64_t offset, ByteSpan src) = 0;
  // Waits until everything begun is in place.
  virtual absl::Status Flush() = 0;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_TENSOR_SINK_H_
