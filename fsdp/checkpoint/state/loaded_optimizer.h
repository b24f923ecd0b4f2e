// SPDX-License-Identifier: Apache-2.0
// LoadedOptimizer: an optimizer's state dict in one form. The input may be
// nested, flattened, or have numbers for names, as in a plain Python
// optimizer's state_dict(). Pure; any thread.
#ifndef FSDP_CHECKPOINT_STATE_LOADED_OPTIMIZER_H_
#define FSDP_CHECKPOINT_STATE_LOADED_OPTIMIZER_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "fsdp/checkpoint/state/state_value.h"

namespace fsdp {

struct LoadedOptimizer {
  struct Group {
    std::vector<std::string> names;  // names of the group's parameters
    StateDict hyperparameters;
  };

  // By parameter name: tensors and numbers by name.
  absl::flat_hash_map<std::string, StateDict> state;
  // A flattened dict has a group for each parameter.
  std::vector<Group> groups;
};

// `names` are the parameter names in each of the optimizer's groups. Dicts with
// numbers need them; numbers count through all groups. InvalidArgument if
// `state` is not such a dict; an empty one gives no state and no groups.
absl::StatusOr<LoadedOptimizer> ParseOptimizerState(
    const StateDict& state, const std::vector<std::vector<std::string>>& names);

// Turns {"state": {...}, "param_groups": [...]} into "state.<name>.<key>" and
// "param_groups.<name>.<key>".
StateDict FlattenOptimizerState(const StateDict& nested);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_LOADED_OPTIMIZER_H_
