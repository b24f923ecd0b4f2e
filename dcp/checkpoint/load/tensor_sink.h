// SPDX-License-Identifier: Apache-2.0
// TensorSink: receives a tensor's payload while it is loaded. One of the eight
// interfaces with virtual functions; implemented for a trainer's memory, on a
// CPU or a GPU. Called by one lane thread at a time.
#ifndef DCP_CHECKPOINT_LOAD_TENSOR_SINK_H_
#define DCP_CHECKPOINT_LOAD_TENSOR_SINK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "dcp/base/bytes.h"

namespace dcp {

class TensorSink {
 public:
  virtual ~TensorSink() = default;

  // The whole payload's memory, row-major, if a load may write to it directly:
  // every byte is then written there once, from the block that received it, and
  // neither Place nor Flush is called. Empty if a load may not write there, as
  // on a GPU or for a tensor with strides.
  virtual MutableByteSpan DirectSpan() { return {}; }

  // Starts copying `src` to bytes [offset, offset + src.size()) in the
  // row-major payload. `src` stays valid until Flush returns. Every byte is
  // placed exactly once.
  virtual absl::Status Place(uint64_t offset, ByteSpan src) = 0;
  // Waits until all copies have finished.
  virtual absl::Status Flush() = 0;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_LOAD_TENSOR_SINK_H_
