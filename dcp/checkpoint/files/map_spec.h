// SPDX-License-Identifier: Apache-2.0
// MapSpec: the mapping through which a checkpoint is opened, with the options.
// Plain data.
#ifndef DCP_CHECKPOINT_FILES_MAP_SPEC_H_
#define DCP_CHECKPOINT_FILES_MAP_SPEC_H_

#include <string>
#include <vector>

#include "dcp/mapping/application/mapping.h"

namespace dcp {

// Another checkpoint of a mean.
struct MeanTerm {
  std::string path;
  double weight = 1;
};

struct MapSpec {
  Mapping mapping;
  MapOptions options;
  // The text before the model's names on each side, such as "model.". A source
  // tensor with another beginning keeps the name.
  std::string model_from = {};
  std::string model_to = {};
  // The text before the names of an optimizer's states on each side, instead of
  // the rule file's: "app.optim.state." for "optimizer.state.".
  std::string states_from = {};
  std::string states_to = {};
  // Computed before the rules apply: the folder of a LoRA adapter that is
  // merged into the source, or other checkpoints with the same tensors, for a
  // mean. Not both. Weights are relative: the mean is divided by their sum.
  std::string adapter = {};
  std::vector<MeanTerm> average = {};
  double source_weight = 1;  // in the mean
  // Computed after the rules apply: the resulting tensors become float8 codes
  // with scales, named by the destination side's `blocks`, except for those
  // that `blocks` or one of these globs excludes.
  bool encode = false;
  std::vector<std::string> encode_exclude = {};
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_MAP_SPEC_H_
