// SPDX-License-Identifier: Apache-2.0
// IoQueue on io_uring. Requests with memory inside `memory` use it as
// registered buffers, so that the kernel does not map the pages again each
// time. Other requests, or all if the kernel refuses to register
// (RLIMIT_MEMLOCK), are sent unregistered.
#ifndef DCP_IO_URING_QUEUE_H_
#define DCP_IO_URING_QUEUE_H_

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "dcp/io/io_queue.h"

namespace dcp {

// `memory` must outlive the queue and may be empty. Fails if the kernel has no
// io_uring or forbids it.
absl::StatusOr<std::unique_ptr<IoQueue>> NewUringQueue(
    uint32_t depth, std::span<uint8_t> memory);

}  // namespace dcp

#endif  // DCP_IO_URING_QUEUE_H_
