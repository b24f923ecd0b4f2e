// SPDX-License-Identifier: Apache-2.0
// ConvertShare: one of several workers that share a conversion. Each makes the
// same plan, writes the pieces of a share that have no record yet, and records
// each. A worker that finds all records makes the checkpoint appear. The
// workers never speak to each other: they may run at different times, die, and
// be started again, also in another number. share_convert.cc describes the
// protocol. Blocking; any thread.
#ifndef DCP_CHECKPOINT_SHARE_SHARE_CONVERT_H_
#define DCP_CHECKPOINT_SHARE_SHARE_CONVERT_H_

#include <cstdint>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/convert/convert_options.h"
#include "dcp/checkpoint/convert/convert_plan.h"
#include "dcp/io/file_system.h"
#include "dcp/plan/pieces.h"

namespace dcp {

struct ShareOptions {
  Share share;
  uint64_t piece_bytes = kPieceBytes;
  // Called once before payload moves, with the bytes that this worker will
  // write; optional.
  absl::AnyInvocable<void(uint64_t num_bytes)> on_begin = nullptr;
};

struct ShareResult {
  // The plan of the whole conversion. The check of the source and the cast
  // losses are those of all workers if this one made the checkpoint appear,
  // otherwise only this worker's.
  ConvertPlan plan;
  std::string id;  // the plan's
  uint32_t num_pieces = 0;
  uint32_t num_written = 0;    // by this worker, now
  bool is_complete = false;    // the checkpoint is there
  bool has_committed = false;  // this worker made it appear
};

// Does one share. Errors as ConvertCheckpoint, and: FailedPrecondition when
// workers with another plan are at work at `dst`; InvalidArgument for a stream,
// a journal, or a layout with folders; Unimplemented for a store that writes
// files in order. After an error nothing is removed, because other workers use
// the files too.
absl::StatusOr<ShareResult> ConvertShare(FileSystem& fs, absl::string_view src,
                                         absl::string_view dst,
                                         ConvertOptions options,
                                         ShareOptions share);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SHARE_SHARE_CONVERT_H_
