// SPDX-License-Identifier: Apache-2.0
// SourceCheckReport: counts of the comparisons of a conversion with the
// checksums that its source records. Plain data; any thread.
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
  // in part; and the bytes that were read of them.
  uint64_t num_items_unchecked = 0;
  uint64_t bytes_unchecked = 0;

  // Adds what another worker, or this one before, has found.
  void Add(const SourceCheckReport& other);
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_READ_SOURCE_CHECK_REPORT_H_
