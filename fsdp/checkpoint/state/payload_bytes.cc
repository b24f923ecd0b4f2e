// SPDX-License-Identifier: Apache-2.0
// Computes payload sizes and memory budgets.
// Tested by tests/fsdp/checkpoint/save_and_load_test.cc.
#include "fsdp/checkpoint/state/payload_bytes.h"

#include <algorithm>

#include "dcp/base/limits.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace fsdp {

uint64_t PayloadBytes(const dcp::LoadTensor& tensor) {
  return static_cast<uint64_t>(dcp::Volume(tensor.box.sizes)) *
         dcp::ElementSize(tensor.dtype);
}

uint64_t PayloadBytes(absl::Span<const dcp::LoadTensor> tensors) {
  uint64_t num_bytes = 0;
  for (const dcp::LoadTensor& tensor : tensors) {
    num_bytes += PayloadBytes(tensor);
  }
  return num_bytes;
}

uint64_t MemoryFor(uint64_t payload_bytes, uint64_t budget_bytes) {
  return std::min(budget_bytes, dcp::kMinMemoryBytes + 4 * payload_bytes);
}

}  // namespace fsdp
