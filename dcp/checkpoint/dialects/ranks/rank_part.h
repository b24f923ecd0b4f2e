// SPDX-License-Identifier: Apache-2.0
// RankPart: one family's files that were read, one for each rank. Plain data;
// the functions are for any thread.
#ifndef DCP_CHECKPOINT_DIALECTS_RANKS_RANK_PART_H_
#define DCP_CHECKPOINT_DIALECTS_RANKS_RANK_PART_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/checkpoint/dialects/parts/state_collector.h"
#include "dcp/format/torch/rank_tensor.h"
#include "dcp/format/torch/torch_archive.h"
#include "dcp/format/value/value.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

// One rank's file.
struct RankFile {
  uint32_t file = 0;
  std::string name;  // for messages
  int64_t rank = 0;
  int64_t world_size = 0;  // the family's file count
  const TorchArchive* archive = nullptr;
  Value root;
};

// A family that was read.
struct RankPart {
  std::string name;  // as RankFiles::part
  std::vector<RankFile> files;
};

// DataLoss if a tensor in the file says that it belongs to another rank, or was
// saved by another number of ranks.
absl::Status CheckOwner(const RankFile& file, const RankTensor& tensor);

// The part that the file holds of a sharded tensor, which it owns.
absl::StatusOr<StateCollector::Part> MakePart(const RankFile& file,
                                              RankTensor tensor);

// A state dict that each rank has: the roots of the files in `part`, or their
// values at `key`.
struct RankState {
  RankPart* part = nullptr;
  std::string key;  // empty for the root
  StatePath path;   // the state dict's path in the checkpoint

  // DataLoss, naming the rank, if the file does not have the key.
  absl::StatusOr<Value> Get(const RankFile& file) const;
  // Replaces the state dict in the root of `file`. New values are made in
  // `arena`.
  void Set(ValueArena& arena, RankFile& file, Value value) const;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_RANKS_RANK_PART_H_
