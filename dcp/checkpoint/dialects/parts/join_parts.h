// SPDX-License-Identifier: Apache-2.0
// JoinParts: makes one checkpoint of several that are below one directory, such
// as a model and its optimizer. Pure; any thread.
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
  // Where the part is, relative to the directory of all; empty if there.
  std::string folder;
  // What its names get in front, so that model.safetensors becomes "model.";
  // empty if they stay as they are.
  StatePath prefix;
  CheckpointParts parts;
};

// The root of the names of a model or optimizer: `part` for the first, whose
// number is "" or "0", and "model_1" for the second.
std::string NumberedRoot(absl::string_view part, absl::string_view number);

// The parts, at least one, in their order, as a checkpoint in `directory`. Its
// format is DCP if that of a part is, otherwise torch.save's if that of a part
// is. DataLoss when two parts have the same name.
absl::StatusOr<CheckpointParts> JoinParts(std::string directory,
                                          std::vector<PartToJoin> all);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_PARTS_JOIN_PARTS_H_
