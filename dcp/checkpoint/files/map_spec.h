// SPDX-License-Identifier: Apache-2.0
// MapSpec: which mapping a checkpoint is opened through, and how. Plain data.
#ifndef DCP_CHECKPOINT_FILES_MAP_SPEC_H_
#define DCP_CHECKPOINT_FILES_MAP_SPEC_H_

#include <string>
#include <vector>

#include "dcp/mapping/application/mapping.h"

namespace dcp {

struct MapSpec {
  Mapping mapping;
  MapOptions options;
  // What stands before the names of the model on each side, such as "model.". A
  // tensor of the source whose name begins otherwise keeps its name.
  std::string model_from = {};
  std::string model_to = {};
  // What the names of an optimizer's states begin with on each side, instead of
  // what the rule file says: "app.optim.state." for "optimizer.state.".
  std::string states_from = {};
  std::string states_to = {};
  // Computed before the rules apply: the folder of a LoRA adapter that is
  // merged into the source, or other checkpoints with the same tensors, with
  // which the mean is taken. Not both.
  std::string adapter = {};
  std::vector<std::string> average = {};
  // Computed after the rules apply: tensors of the result become float8 codes
  // with scales, named as `blocks` of the destination's side says, except for
  // those that it or one of these globs excludes.
  bool encode = false;
  std::vector<std::string> encode_exclude = {};
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_MAP_SPEC_H_
