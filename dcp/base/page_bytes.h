// SPDX-License-Identifier: Apache-2.0
// The size of memory pages. x86-64 has pages of 4 KiB. A kernel for aarch64 has
// pages of 4, 16 or 64 KiB, so only the running system knows. Any thread.
#ifndef DCP_BASE_PAGE_BYTES_H_
#define DCP_BASE_PAGE_BYTES_H_

#include <unistd.h>

#include <cstdint>

namespace dcp {

inline uint64_t PageBytes() {
  return static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// A huge page takes the place of one whole page table, which fills a page with
// entries of 8 bytes: 2 MiB for pages of 4 KiB, 32 for 16, and 512 for 64.
constexpr uint64_t HugePageBytes(uint64_t page_bytes) {
  return page_bytes / sizeof(uint64_t) * page_bytes;
}

}  // namespace dcp

#endif  // DCP_BASE_PAGE_BYTES_H_
