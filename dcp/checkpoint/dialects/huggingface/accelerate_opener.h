// SPDX-License-Identifier: Apache-2.0
// Opens the result of accelerate's save_state: models and optimizers, whole or
// as FSDP shards them (as DCP, as one torch.save file or as one for each rank),
// and scheduler, random states and more next to them, as one checkpoint. Any
// thread. Source: accelerate/utils/{fsdp_utils,constants}.py, checkpointing.py
// (1.15.0).
#ifndef DCP_CHECKPOINT_DIALECTS_HUGGINGFACE_ACCELERATE_OPENER_H_
#define DCP_CHECKPOINT_DIALECTS_HUGGINGFACE_ACCELERATE_OPENER_H_

#include <optional>
#include <stop_token>
#include <vector>

#include "absl/status/statusor.h"
#include "dcp/checkpoint/dialects/parts/join_parts.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/files/open_options.h"

namespace dcp {

// Names are model.NAME, optimizer.state.NAME.exp_avg and so on; for a second
// model and optimizer they begin with model_1 and optimizer_1. The rest is
// extra.scheduler and so on. Nullopt if the directory has no model, or nothing
// from accelerate next to it. NotFound, with the names, when other machines'
// files are missing. Cancelled once `stop` is requested.
absl::StatusOr<std::optional<CheckpointParts>> TryOpenAccelerate(
    const SourceDirectory& directory, const OpenOptions& options,
    const std::stop_token& stop = {});

// FSDP's models and optimizers alone, for joining; empty if there are none.
absl::StatusOr<std::vector<PartToJoin>> OpenFsdpParts(
    const SourceDirectory& directory, const OpenOptions& options,
    const std::stop_token& stop = {});

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_HUGGINGFACE_ACCELERATE_OPENER_H_
