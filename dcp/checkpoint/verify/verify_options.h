// SPDX-License-Identifier: Apache-2.0
// VerifyOptions: the part that a verify checks, and its memory. Plain data.
#ifndef DCP_CHECKPOINT_VERIFY_VERIFY_OPTIONS_H_
#define DCP_CHECKPOINT_VERIFY_VERIFY_OPTIONS_H_

#include <cstdint>
#include <stop_token>

#include "absl/functional/any_invocable.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/files/open_options.h"
#include "dcp/checkpoint/verify/verify_pieces.h"
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

}  // namespace dcp

#endif  // DCP_CHECKPOINT_VERIFY_VERIFY_OPTIONS_H_
