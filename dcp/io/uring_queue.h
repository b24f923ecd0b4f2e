// IoQueue on io_uring. Requests whose memory lies in `memory` use it as
// registered buffers, so that the kernel does not map their pages anew each
// time; others, or all where the kernel refuses to register (RLIMIT_MEMLOCK),
// go as plain ones.
#ifndef DCP_IO_URING_QUEUE_H_
#define DCP_IO_URING_QUEUE_H_

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "dcp/io/io_queue.h"

namespace dcp {

// `memory` outlives the queue and may be empty. An error where the kernel has
// no io_uring or forbids it.
absl::StatusOr<std::unique_ptr<IoQueue>> NewUringQueue(
    uint32_t depth, std::span<uint8_t> memory);

}  // namespace dcp

#endif  // DCP_IO_URING_QUEUE_H_
