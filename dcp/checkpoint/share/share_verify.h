// SPDX-License-Identifier: Apache-2.0
// ShareVerify: one worker of several that share a verify. Each checks the
// pieces of its share that have no record yet, and leaves a record of what it
// found in each; whoever finds all records has the whole report. As in
// share_convert.h, the workers never speak to each other. Blocking; any thread.
#ifndef DCP_CHECKPOINT_SHARE_SHARE_VERIFY_H_
#define DCP_CHECKPOINT_SHARE_SHARE_VERIFY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/verify/verify.h"
#include "dcp/checkpoint/verify/verify_report.h"
#include "dcp/io/file_system.h"
#include "dcp/plan/pieces.h"

namespace dcp {

struct ShareVerifyOptions {
  Share share;
  uint64_t piece_bytes = kPieceBytes;
  // A directory that all workers see, for the records; made if it is missing.
  std::string records;
};

struct ShareVerifyResult {
  VerifyReport report;  // of all workers if complete, otherwise of this one
  std::string id;       // of the plan
  uint32_t num_pieces = 0;
  uint32_t num_checked = 0;  // by this worker, now
  bool is_complete = false;  // all pieces have been checked
};

// Does one share. The errors are those of VerifyCheckpoint; also
// FailedPrecondition when `records` has those of another source or of other
// options. The records stay, so that FindWork finds the report and a worker
// that comes late has nothing to do, until DiscardWork removes them.
absl::StatusOr<ShareVerifyResult> ShareVerify(FileSystem& fs,
                                              absl::string_view src,
                                              VerifyOptions options,
                                              ShareVerifyOptions share);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SHARE_SHARE_VERIFY_H_
