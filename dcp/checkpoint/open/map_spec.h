// MapSpec: which mapping a checkpoint is opened through, and how. Plain data.
#ifndef DCP_CHECKPOINT_OPEN_MAP_SPEC_H_
#define DCP_CHECKPOINT_OPEN_MAP_SPEC_H_

#include <string>

#include "dcp/mapping/mapping.h"

namespace dcp {

struct MapSpec {
  Mapping mapping;
  MapOptions options;
  // What stands before the names of the model on each side, such as "model.".
  // The source's tensors without it, and without `states_from`, are left out.
  std::string model_from = {};
  std::string model_to = {};
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OPEN_MAP_SPEC_H_
