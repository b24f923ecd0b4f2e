// LoadedOptimizer: an optimizer's state dict in the one shape in which it is
// set, whatever shape it came in: nested, flattened, or with numbers for names
// as a plain Python optimizer's state_dict() has. Pure; any thread.
#ifndef DCP_TORCH_LOADED_OPTIMIZER_H_
#define DCP_TORCH_LOADED_OPTIMIZER_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "dcp/torch/state_value.h"

namespace dcp {

struct LoadedOptimizer {
  struct Group {
    std::vector<std::string> names;  // of its parameters
    StateDict hyperparameters;
  };

  // By the parameter's name; its tensors and numbers by theirs.
  absl::flat_hash_map<std::string, StateDict> state;
  // A flattened dict has one for each parameter.
  std::vector<Group> groups;
};

// `names` are those of the optimizer's groups, for dicts with numbers: these
// count through all groups. InvalidArgument for what is no such dict; an empty
// one has no state and no groups.
absl::StatusOr<LoadedOptimizer> ParseOptimizerState(
    const StateDict& state, const std::vector<std::vector<std::string>>& names);

// {"state": {...}, "param_groups": [...]} to "state.<name>.<key>" and
// "param_groups.<name>.<key>".
StateDict FlattenOptimizerState(const StateDict& nested);

}  // namespace dcp

#endif  // DCP_TORCH_LOADED_OPTIMIZER_H_
