// SPDX-License-Identifier: Apache-2.0
// Since Linux 6.1 a file system can say how direct requests must be aligned.
// Many do: 32 KiB on a disk with such sectors, 64 KiB where whole pages are
// transferred and pages are that large. Those that say nothing may still need
// whole pages (Lustre, older OpenZFS), so a page is the answer for them.
//
// A file system may also name the unit that it likes to write, which is larger
// than kMaxDirectAlignment (OpenZFS names the record). It takes less, too.
#include "dcp/io/direct_alignment.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>

#include "dcp/base/limits.h"
#include "dcp/base/page_bytes.h"

namespace dcp {

uint64_t DirectAlignment(int fd) {
  struct statx info = {};
  // After an error the answer stays empty, as from an older kernel.
  static_cast<void>(statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info));
  return DirectAlignmentFrom(info, PageBytes());
}

uint64_t DirectAlignmentFrom(const struct statx& info, uint64_t page_bytes) {
  const bool says = (info.stx_mask & STATX_DIOALIGN) != 0;
  const uint64_t needed =
      says ? std::max(info.stx_dio_offset_align, info.stx_dio_mem_align)
           : page_bytes;
  return std::bit_ceil(
      std::clamp(needed, kDirectAlignment, kMaxDirectAlignment));
}

}  // namespace dcp
