// SPDX-License-Identifier: Apache-2.0
// StreamingCopy: memcpy for data that will not be read again soon, such as a
// tensor on the way into a block that waits for the disk. It writes around the
// cache: memory is not fetched before it is overwritten, and the trainer's data
// stays in the cache. memcpy itself does so only for a single piece that is
// much longer than a block. Pure; any thread.
#ifndef DCP_BASE_STREAMING_COPY_H_
#define DCP_BASE_STREAMING_COPY_H_

#include <cstddef>
#include <cstdint>

namespace dcp {

// Same arguments as memcpy. When it returns, other threads and devices may be
// given `dst`.
void StreamingCopy(uint8_t* dst, const uint8_t* src, size_t size);

}  // namespace dcp

#endif  // DCP_BASE_STREAMING_COPY_H_
