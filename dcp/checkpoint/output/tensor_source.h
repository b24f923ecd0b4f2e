// SPDX-License-Identifier: Apache-2.0
// TensorSource: gives a tensor's payload on demand while it is saved. One of
// the eight interfaces; implemented for a trainer's memory, on a CPU or a GPU.
// Called by one lane thread at a time.
#ifndef DCP_CHECKPOINT_OUTPUT_TENSOR_SOURCE_H_
#define DCP_CHECKPOINT_OUTPUT_TENSOR_SOURCE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "dcp/base/bytes.h"

namespace dcp {

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // Starts copying bytes [offset, offset + dst.size()) of the row-major payload
  // to `dst`, which stays valid until Flush returns.
  virtual absl::Status Fill(uint64_t offset, MutableByteSpan dst) = 0;
  // Waits until all copies have finished.
  virtual absl::Status Flush() = 0;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OUTPUT_TENSOR_SOURCE_H_
