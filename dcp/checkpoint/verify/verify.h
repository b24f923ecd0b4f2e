// SPDX-License-Identifier: Apache-2.0
// Verify: recomputes everything that can be checked in a checkpoint and reports
// it item by item: structure, coverage, zip records' CRC-32, our own digests.
// Blocking; any thread.
#ifndef DCP_CHECKPOINT_VERIFY_VERIFY_H_
#define DCP_CHECKPOINT_VERIFY_VERIFY_H_

#include <cstdint>
#include <stop_token>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/files/open_options.h"
#include "dcp/checkpoint/verify/verify_pieces.h"
#include "dcp/checkpoint/verify/verify_report.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"

namespace dcp {

struct VerifyOptions {
  OpenOptions open;
  // Checks this share of the items' payloads, selected evenly in their order,
  // and at least one in each file; structure is always checked completely. 0 <
  // percent <= 100.
  double sample_percent = 100;
  uint64_t memory_bytes = kDefaultMemoryBytes;
  std::stop_token stop;
  TransferStats* stats = nullptr;
  // Called once at the start with the total bytes that will be read; optional.
  absl::AnyInvocable<void(uint64_t bytes)> on_plan;
  VerifyPieces* pieces = nullptr;  // null: everything is checked
};

// Wrong or missing bytes in the chosen pieces are findings. Returns an error if
// the index cannot be read at all, or as soon as something cannot be examined
// for any reason: the store does not answer, a permission is missing, memory or
// descriptors are used up. An error says nothing about the checkpoint.
absl::StatusOr<VerifyReport> VerifyCheckpoint(FileSystem& fs,
                                              absl::string_view path,
                                              VerifyOptions options);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_VERIFY_VERIFY_H_
