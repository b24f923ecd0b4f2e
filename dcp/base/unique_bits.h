// SPDX-License-Identifier: Apache-2.0
// UniqueBits: random bits for names that must not collide, and for waits that
// must differ; not for secrets. They need no file and no permission: where a
// sandbox denies the kernel's random bytes, others take their place. Any
// thread.
#ifndef DCP_BASE_UNIQUE_BITS_H_
#define DCP_BASE_UNIQUE_BITS_H_

#include <cstdint>
#include <string>

namespace dcp {

// No other call returns the same bits, in any thread, process or machine.
uint64_t UniqueBits();

// A UUID from random bits, "xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx" (RFC 4122,
// version 4).
std::string NewUuid();

}  // namespace dcp

#endif  // DCP_BASE_UNIQUE_BITS_H_
