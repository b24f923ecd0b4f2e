// SPDX-License-Identifier: Apache-2.0
// ConvertShare: one worker of several that share a conversion. Each makes the
// same plan, writes the pieces of its share that have no record yet, and leaves
// a record of each; whoever finds all records makes the checkpoint appear. The
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
  // Of the whole conversion. What was found in the source and by casts is that
  // of all workers if this one made the checkpoint appear, otherwise its own.
  ConvertPlan plan;
  std::string id;  // of the plan
  uint32_t num_pieces = 0;
  uint32_t num_written = 0;    // by this worker, now
  bool is_complete = false;    // the checkpoint is there
  bool has_committed = false;  // this worker made it appear
};

// Does one share. The errors are those of ConvertCheckpoint; also
// FailedPrecondition when workers with another plan are at work at `dst`, and
// InvalidArgument for a stream, a journal, or a layout with folders, and
// Unimplemented for a store whose files are written in order. After an
// error nothing is removed, because the files are those of other workers too.
absl::StatusOr<ShareResult> ConvertShare(FileSystem& fs, absl::string_view src,
                                         absl::string_view dst,
                                         ConvertOptions options,
                                         ShareOptions share);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SHARE_SHARE_CONVERT_H_
