// SPDX-License-Identifier: Apache-2.0
// Recognises Megatron-core and NeMo 2 checkpoints by a directory's files, and
// refuses their formats that cannot be read. Any thread. Source:
// megatron/core/dist_checkpointing/core.py (CheckpointingConfig),
// megatron/training/checkpointing.py (get_checkpoint_name), 0.19.
#ifndef DCP_CHECKPOINT_DIALECTS_MEGATRON_MEGATRON_FILES_H_
#define DCP_CHECKPOINT_DIALECTS_MEGATRON_MEGATRON_FILES_H_

#include <stop_token>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/files/open_options.h"

namespace dcp {

// State that is not sharded is in this file until 0.18, then in this entry.
inline constexpr absl::string_view kCommonFile = "common.pt";
inline constexpr absl::string_view kCommonEntry = "common_state/shard_0_1";

// Whether `directory` is a checkpoint with the backend torch_dist.
// Unimplemented for another backend and for the format with a file for each
// model-parallel rank; NotFound for a save that did not finish, unless
// `options` name the dialect.
absl::StatusOr<bool> IsMegatronDirectory(const SourceDirectory& directory,
                                         const OpenOptions& options,
                                         const std::stop_token& stop);

// NotFound if `parts`, the DCP directory at `path`, come from a Megatron-core
// save that did not finish.
absl::Status CheckMegatronSaveFinished(absl::string_view path,
                                       const CheckpointParts& parts);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_MEGATRON_MEGATRON_FILES_H_
