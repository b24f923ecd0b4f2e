// SPDX-License-Identifier: Apache-2.0
// The alignment that direct requests on a file need. Any thread.
#ifndef DCP_IO_DIRECT_ALIGNMENT_H_
#define DCP_IO_DIRECT_ALIGNMENT_H_

#include <sys/stat.h>

#include <cstdint>

namespace dcp {

// For an open file: a power of two from kDirectAlignment to
// kMaxDirectAlignment.
uint64_t DirectAlignment(int fd);

// The same, from the answer of statx on a system with pages of `page_bytes`.
uint64_t DirectAlignmentFrom(const struct statx& info, uint64_t page_bytes);

}  // namespace dcp

#endif  // DCP_IO_DIRECT_ALIGNMENT_H_
