// SPDX-License-Identifier: Apache-2.0
// Recognises the checkpoints of Megatron-core and of NeMo 2 by the files of a
// directory, and refuses those of their formats that cannot be read. Any
// thread.
// Source: megatron/core/dist_checkpointing/core.py (CheckpointingConfig),
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

// Until 0.18, what is not sharded is in this file; then in this entry.
inline constexpr absl::string_view kCommonFile = "common.pt";
inline constexpr absl::string_view kCommonEntry = "common_state/shard_0_1";

// Whether `directory` is a checkpoint with the backend torch_dist.
// Unimplemented for another backend and for the format with a file for each
// model-parallel rank; NotFound for a save that did not finish, unless
// `options` name the dialect.
absl::StatusOr<bool> IsMegatronDirectory(const SourceDirectory& directory,
                                         const OpenOptions& options,
                                         const std::stop_token& stop);

// NotFound if `parts`, the DCP directory at `path`, are those of a save of
// Megatron-core that did not finish.
absl::Status CheckMegatronSaveFinished(absl::string_view path,
                                       const CheckpointParts& parts);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_MEGATRON_MEGATRON_FILES_H_
