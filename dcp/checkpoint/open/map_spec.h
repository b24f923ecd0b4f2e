// MapSpec: which mapping a checkpoint is opened through, and how. Plain data.
#ifndef DCP_CHECKPOINT_OPEN_MAP_SPEC_H_
#define DCP_CHECKPOINT_OPEN_MAP_SPEC_H_

#include <string>

#include "dcp/mapping/mapping.h"

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
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OPEN_MAP_SPEC_H_
