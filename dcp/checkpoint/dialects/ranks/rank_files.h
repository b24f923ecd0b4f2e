// SPDX-License-Identifier: Apache-2.0
// RankFiles: the torch.save files in a directory to which each rank wrote one,
// by their names. Looks at names, not into the files. Pure; any thread.
#ifndef DCP_CHECKPOINT_DIALECTS_RANKS_RANK_FILES_H_
#define DCP_CHECKPOINT_DIALECTS_RANKS_RANK_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Files that differ only in the rank.
struct RankFiles {
  // The name for their contents: "model", "optimizer", "extra" or an item's
  // name; empty if the files' own keys name them.
  std::string part;
  std::vector<std::string> names;  // by rank, from 0 on; at least one
  // Whether they may be pickles from Python's own module instead.
  bool may_be_bare = false;
};

// All families among a directory's files: verl's and SkyRL's
// (model_world_size_8_rank_0.pt), accelerate's
// (pytorch_model_fsdp_0_rank0.bin), PyTorch's experimental checkpointer's
// (checkpoint_0.pt), torch_checkpointing's (model_0.pt next to metadata.pkl),
// and home-made ones (weights.rank_0.pth). Empty if there are none. NotFound,
// with the pattern, the ranks found and the expected count, if one is
// incomplete; FailedPrecondition if two hold the same part.
absl::StatusOr<std::vector<RankFiles>> FindRankFiles(
    absl::Span<const DirectoryEntry> entries);

// The files that `pattern`, such as "weights.{rank}.th", names. NotFound if
// there are none or not all, InvalidArgument without "{rank}".
absl::StatusOr<std::vector<RankFiles>> FindRankFiles(
    absl::Span<const DirectoryEntry> entries, absl::string_view pattern);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_RANKS_RANK_FILES_H_
