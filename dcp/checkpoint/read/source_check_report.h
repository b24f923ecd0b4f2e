// SPDX-License-Identifier: Apache-2.0
// SourceCheckReport: counts how a conversion compared the source with recorded
// checksums. Plain data; any thread.
#ifndef DCP_CHECKPOINT_READ_SOURCE_CHECK_REPORT_H_
#define DCP_CHECKPOINT_READ_SOURCE_CHECK_REPORT_H_

#include <cstdint>

namespace dcp {

struct SourceCheckReport {
  bool checked = false;  // false: no check was requested
  uint64_t num_crcs_checked = 0;
  uint64_t num_digests_checked = 0;
  uint64_t bytes_checked = 0;
  // Chunks and objects that have neither CRC nor digest, or that were read only
  // in part; and how many of their bytes were read.
  uint64_t num_items_unchecked = 0;
  uint64_t bytes_unchecked = 0;

  // Adds another worker's counts, or those from an earlier run.
  void Add(const SourceCheckReport& other);
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_READ_SOURCE_CHECK_REPORT_H_
