// SPDX-License-Identifier: Apache-2.0
// ShareVerify: one of several workers that share a verify. Each checks the
// pieces of a share that have no record yet, and records the findings. A worker
// that finds all records has the whole report. As in share_convert.h, the
// workers never speak to each other. Blocking; any thread.
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
  VerifyReport report;  // by all workers if complete, otherwise by this one
  std::string id;       // the plan's
  uint32_t num_pieces = 0;
  uint32_t num_checked = 0;  // by this worker, now
  bool is_complete = false;  // all pieces have been checked
};

// Does one share. Errors as VerifyCheckpoint; also FailedPrecondition when
// `records` belongs to another source or to other options. The records stay
// until DiscardWork removes them: FindWork finds the report, and a late worker
// has nothing to do.
absl::StatusOr<ShareVerifyResult> ShareVerify(FileSystem& fs,
                                              absl::string_view src,
                                              VerifyOptions options,
                                              ShareVerifyOptions share);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SHARE_SHARE_VERIFY_H_
