// SPDX-License-Identifier: Apache-2.0
// RankIndices: a DCP directory that was saved with use_collectives=False. It
// has an index for each rank, __{rank}.metadata, for the tensors that this rank
// has written: its own shards with their place in the whole tensor, and
// everything that it has whole. Any thread. Source:
// torch/distributed/checkpoint/state_dict_saver.py, filesystem.py (2.15).
#ifndef DCP_CHECKPOINT_DIALECTS_RANKS_RANK_INDICES_H_
#define DCP_CHECKPOINT_DIALECTS_RANKS_RANK_INDICES_H_

#include <stop_token>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/dialects/parts/dialect_opener.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/files/open_options.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Opens one rank's checkpoint, if `options` choose one, or all together. Then
// shards are joined, and values that ranks have whole are kept once; where they
// differ, they are called NAME@RANK except on the lowest rank. NotFound, with
// the ranks, if a rank's index is missing; DataLoss if shards do not cover a
// tensor, or if the ranks disagree about it. Cancelled once `stop` is
// requested.
absl::StatusOr<CheckpointParts> OpenRankIndices(FileSystem& fs,
                                                absl::string_view directory,
                                                const OpenOptions& options,
                                                const std::stop_token& stop);

// The same; nullopt if no rank has an index in the directory.
MaybeParts TryOpenRankIndices(const SourceDirectory& directory,
                              const OpenOptions& options,
                              const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_RANKS_RANK_INDICES_H_
