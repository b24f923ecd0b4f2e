// SPDX-License-Identifier: Apache-2.0
// SaveReport: the cost of one background save on this rank.
#ifndef FSDP_CHECKPOINT_SAVE_REPORT_H_
#define FSDP_CHECKPOINT_SAVE_REPORT_H_

#include <cstdint>

namespace fsdp {

struct SaveReport {
  uint64_t bytes_written = 0;  // by this rank, so far
  // How long the thread that trains has waited, in save(), in wait_staged(),
  // and in operators that write into the state.
  double stalled_seconds = 0;
  // From the call to save() until the state had been copied, and until the save
  // ended, durable or not; 0 before that.
  double staged_seconds = 0;
  double total_seconds = 0;
};

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_SAVE_REPORT_H_
