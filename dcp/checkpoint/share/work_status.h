// SPDX-License-Identifier: Apache-2.0
// WorkStatus: how far workers that share a conversion or a verify are, and how
// to remove what they have left. Blocking; any thread.
#ifndef DCP_CHECKPOINT_SHARE_WORK_STATUS_H_
#define DCP_CHECKPOINT_SHARE_WORK_STATUS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/verify/verify_report.h"
#include "dcp/io/file_system.h"

namespace dcp {

struct WorkStatus {
  std::string id;  // of the plan
  uint32_t num_pieces = 0;
  uint64_t num_bytes = 0;  // of all pieces
  struct Done {
    uint32_t piece = 0;
    uint64_t bytes = 0;
    uint64_t milliseconds = 0;  // that the worker needed
    int64_t written_ns = 0;     // when, by the clock of the file system
    std::string host;
  };
  std::vector<Done> done = {};  // by number
  // Only of a verify, whose records stay when it is complete: the report, of
  // the pieces that are done.
  std::optional<VerifyReport> report = std::nullopt;

  bool is_complete() const { return done.size() == num_pieces; }
};

// The unfinished work at `dst`, which is the directory of the records of a
// verify, which may be complete; nullopt if there is none. FailedPrecondition
// if there is work of several plans.
absl::StatusOr<std::optional<WorkStatus>> FindWork(FileSystem& fs,
                                                   absl::string_view dst);

// Removes the unfinished work at `dst`, of whatever plans, and returns the
// number of plans. No worker may be running: afterwards it would fail, or begin
// again.
absl::StatusOr<size_t> DiscardWork(FileSystem& fs, absl::string_view dst);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SHARE_WORK_STATUS_H_
