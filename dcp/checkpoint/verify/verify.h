// SPDX-License-Identifier: Apache-2.0
// Verify: recomputes everything that can be checked in a checkpoint and reports
// it item by item: structure, coverage, zip records' CRC-32, our own digests.
// Blocking; any thread.
#ifndef DCP_CHECKPOINT_VERIFY_VERIFY_H_
#define DCP_CHECKPOINT_VERIFY_VERIFY_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/verify/verify_options.h"
#include "dcp/checkpoint/verify/verify_report.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Wrong or missing bytes in the chosen pieces are findings. Returns an error if
// the index cannot be read at all, or as soon as something cannot be examined
// for any reason: the store does not answer, a permission is missing, memory or
// descriptors are used up. An error says nothing about the checkpoint.
absl::StatusOr<VerifyReport> VerifyCheckpoint(FileSystem& fs,
                                              absl::string_view path,
                                              VerifyOptions options);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_VERIFY_VERIFY_H_
