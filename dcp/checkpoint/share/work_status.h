// SPDX-License-Identifier: Apache-2.0
// WorkStatus: the progress of workers that share a conversion or a verify, and
// the removal of their work. Blocking; any thread.
#ifndef DCP_CHECKPOINT_SHARE_WORK_STATUS_H_
#define DCP_CHECKPOINT_SHARE_WORK_STATUS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/records/work_record.h"
#include "dcp/checkpoint/verify/verify_report.h"
#include "dcp/io/file_system.h"

namespace dcp {

struct WorkStatus {
  std::string id;  // the plan's
  uint32_t num_pieces = 0;
  uint64_t num_bytes = 0;  // of all pieces
  struct Done {
    uint32_t piece = 0;
    uint64_t bytes = 0;
    uint64_t milliseconds = 0;  // of work
    int64_t written_ns = 0;     // by the clock of the file system
    std::string host;
  };
  std::vector<Done> done = {};  // by number
  // For a verify, which keeps the records when it is complete: the report on
  // the pieces that are done.
  std::optional<VerifyReport> report = std::nullopt;

  bool is_complete() const { return done.size() == num_pieces; }
};

// The unfinished work at `dst`, or the verify, complete or not, with records in
// `dst`; nullopt if there is none. FailedPrecondition if there is work of
// several plans.
absl::StatusOr<std::optional<WorkStatus>> FindWork(FileSystem& fs,
                                                   absl::string_view dst);

// Removes the unfinished work at `dst`, for any plan, and counts the
// plans. No worker may be running: it would fail afterwards, or begin again.
absl::StatusOr<size_t> DiscardWork(FileSystem& fs, absl::string_view dst);

// In an object store: ends the uploads to files of `plan` at `dst` that began
// before `before_ns` (since 1970, by the store's clock). Dead workers leave
// them, and workers that wrote a file again.
absl::Status RemoveUploads(FileSystem& fs, absl::string_view dst,
                           const WorkPlan& plan, int64_t before_ns);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SHARE_WORK_STATUS_H_
