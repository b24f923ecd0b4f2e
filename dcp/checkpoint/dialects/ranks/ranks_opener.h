// SPDX-License-Identifier: Apache-2.0
// Opens a checkpoint to which each rank wrote torch.save files, with DTensors
// or FSDP1's ShardedTensors in them, as verl, SkyRL, accelerate with
// use_dcp=False and many home-made programs do. Any thread.
#ifndef DCP_CHECKPOINT_DIALECTS_RANKS_RANKS_OPENER_H_
#define DCP_CHECKPOINT_DIALECTS_RANKS_RANKS_OPENER_H_

#include <optional>
#include <stop_token>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"
#include "dcp/checkpoint/dialects/ranks/optimizer_names.h"
#include "dcp/checkpoint/dialects/ranks/rank_files.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/files/open_options.h"

namespace dcp {

// All ranks' files as one checkpoint; nullopt if the directory has no such
// files. DataLoss, with the file and the name, when a rank's part does not fit
// its place, when the ranks disagree, or when their parts do not cover a
// tensor; FailedPrecondition for a save of torch_checkpointing that may not
// have finished, unless `options` name the dialect. Cancelled once `stop` is
// requested, but parsing a pickle is not interrupted.
absl::StatusOr<std::optional<CheckpointParts>> TryOpenRanks(
    const SourceDirectory& directory, const OpenOptions& options,
    const std::stop_token& stop = {});

// Unimplemented if the directory has the index of torch_checkpointing, for
// which TryOpenRanks found no files.
absl::Status CheckNoItemsIndex(const SourceDirectory& directory,
                               const std::stop_token& stop);

// A model's parameters.
struct ModelParameters {
  Parameters parameters;
  bool has_order = false;  // whether they are in the model's order
};

// The same for files that the caller found. If they hold an optimizer alone,
// `model` gives names to the numbers; it may be null.
absl::StatusOr<CheckpointParts> OpenRankFiles(
    const SourceDirectory& directory, const std::vector<RankFiles>& families,
    const OpenOptions& options, const std::stop_token& stop = {},
    const ModelParameters* model = nullptr);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_RANKS_RANKS_OPENER_H_
