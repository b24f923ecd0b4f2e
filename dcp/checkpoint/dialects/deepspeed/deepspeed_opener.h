// SPDX-License-Identifier: Apache-2.0
// Opens a DeepSpeed checkpoint, ZeRO stages 0 to 3, under the names that
// PyTorch gives to {"model": ..., "optimizer": ..., "extra": ...}: weights in
// the optimizer's precision, moments and groups, frozen parameters and buffers;
// everything else that rank 0 saved is "extra". Any thread.
#ifndef DCP_CHECKPOINT_DIALECTS_DEEPSPEED_DEEPSPEED_OPENER_H_
#define DCP_CHECKPOINT_DIALECTS_DEEPSPEED_DEEPSPEED_OPENER_H_

#include <optional>
#include <stop_token>

#include "absl/status/statusor.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/files/open_options.h"

namespace dcp {

// Nullopt if the directory is not DeepSpeed's and has no pointer to one that
// is. DataLoss, with file and name, when sizes do not add up; NotFound when
// ranks' files are missing; Unimplemented for layouts that are not supported.
// Cancelled once `stop` is requested, but parsing a pickle is not interrupted.
absl::StatusOr<std::optional<CheckpointParts>> TryOpenDeepSpeed(
    const SourceDirectory& directory, const OpenOptions& options,
    const std::stop_token& stop = {});

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_DEEPSPEED_DEEPSPEED_OPENER_H_
