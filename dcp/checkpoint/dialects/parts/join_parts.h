// SPDX-License-Identifier: Apache-2.0
// JoinParts: makes one checkpoint from several below one directory, such as a
// model and an optimizer. Pure; any thread.
#ifndef DCP_CHECKPOINT_DIALECTS_PARTS_JOIN_PARTS_H_
#define DCP_CHECKPOINT_DIALECTS_PARTS_JOIN_PARTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

struct PartToJoin {
  // The part's folder, relative to the joined directory; empty if it is this
  // one.
  std::string folder;
  // The prefix for the part's names, so that model.safetensors becomes
  // "model."; empty if they stay unchanged.
  StatePath prefix;
  CheckpointParts parts;
};

// The root of a model's or optimizer's names: `part` for the first, which has
// the number "" or "0", and "model_1" for the second.
std::string NumberedRoot(absl::string_view part, absl::string_view number);

// The parts, at least one, in their order, as a checkpoint in `directory`. The
// format is DCP if any part's is, otherwise torch.save's if any part's is.
// DataLoss when two parts have the same name.
absl::StatusOr<CheckpointParts> JoinParts(std::string directory,
                                          std::vector<PartToJoin> all);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_PARTS_JOIN_PARTS_H_
