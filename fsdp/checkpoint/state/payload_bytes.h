// SPDX-License-Identifier: Apache-2.0
// A load's payload in bytes, and the memory for moving it. Pure; any thread.
#ifndef FSDP_CHECKPOINT_STATE_PAYLOAD_BYTES_H_
#define FSDP_CHECKPOINT_STATE_PAYLOAD_BYTES_H_

#include <cstdint>

#include "absl/types/span.h"
#include "dcp/checkpoint/load/load.h"

namespace fsdp {

// The box's bytes, in the sink's type.
uint64_t PayloadBytes(const dcp::LoadTensor& tensor);
uint64_t PayloadBytes(absl::Span<const dcp::LoadTensor> tensors);

// The memory for `payload_bytes`: a small state takes only a little of the
// budget, because memory must be mapped and locked before it is used.
uint64_t MemoryFor(uint64_t payload_bytes, uint64_t budget_bytes);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_PAYLOAD_BYTES_H_
