// Opens a checkpoint to which each rank wrote its own torch.save files, with
// DTensors or FSDP1's ShardedTensors in them: what verl, SkyRL, accelerate with
// use_dcp=False and many home-made programs write. Any thread.
#ifndef DCP_CHECKPOINT_OPEN_DIALECTS_RANKS_OPENER_H_
#define DCP_CHECKPOINT_OPEN_DIALECTS_RANKS_OPENER_H_

#include <stop_token>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/open/checkpoint_parts.h"
#include "dcp/checkpoint/open/dialects/rank_files.h"
#include "dcp/checkpoint/open/open_options.h"
#include "dcp/io/file_system.h"

namespace dcp {

// The files of all ranks as one checkpoint. DataLoss, with the file and the
// name, when a rank's part does not fit its place, when the ranks disagree, or
// when their parts do not cover a tensor. Cancelled once `stop` is requested,
// but parsing a pickle is not interrupted.
absl::StatusOr<CheckpointParts> OpenRankFiles(
    FileSystem& fs, absl::string_view directory,
    const std::vector<RankFiles>& families, const OpenOptions& options,
    const std::stop_token& stop = {});

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OPEN_DIALECTS_RANKS_OPENER_H_
