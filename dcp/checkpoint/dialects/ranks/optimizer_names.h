// SPDX-License-Identifier: Apache-2.0
// OptimizerNames: which parameter each number in a torch.optim state_dict()
// means. Such a dict counts parameters in the order in which the optimizer got
// them, which is up to the program; the names are found by comparing with the
// model, and never guessed. Pure; any thread.
#ifndef DCP_CHECKPOINT_DIALECTS_RANKS_OPTIMIZER_NAMES_H_
#define DCP_CHECKPOINT_DIALECTS_RANKS_OPTIMIZER_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "dcp/checkpoint/files/source_loss.h"
#include "dcp/format/value/value.h"
#include "dcp/tensor/box.h"

namespace dcp {

using OptimizerNames = absl::flat_hash_map<int64_t, std::string>;

// Names and whole shapes.
using Parameters = std::vector<std::pair<std::string, Dims>>;

// The parameters in a state dict, in its order: the sharded tensors, or all if
// none is sharded, without repetitions of tied ones.
Parameters SavedParameters(const Value& model);

struct FoundNames {
  OptimizerNames names;  // empty if they are not certain
  // Whether only the parameters' order would identify them, because several
  // have the same shape.
  bool needs_order = false;
};

// The names in `parameters` for the numbers in `optimizer`, {"state": ...,
// "param_groups": ...}. They are certain if the groups record them (torch.optim
// with named_parameters()), or if each state has the shape of one parameter
// only. With `in_order`, a single group's numbers follow the order in
// `parameters`, if the shapes agree.
FoundNames FindOptimizerNames(const Parameters& parameters,
                              const Value& optimizer, bool in_order);

// The loss for an optimizer with names that need the order; `has_order` is
// whether the model's files record one.
SourceLoss NumberedOptimizer(bool has_order);

// The numbers in the only group of `optimizer`; nullopt if there are several
// groups or if the group has names.
std::optional<std::vector<int64_t>> OnlyGroupNumbers(const Value& optimizer);

// `groups`, a list of param_groups, with names in place of the numbers. New
// values are made in `arena`.
Value GroupsWithNames(
    ValueArena& arena, const Value& groups,
    const absl::flat_hash_map<int64_t, std::vector<std::string>>& names);

// `optimizer` with names in place of numbers, as get_optimizer_state_dict makes
// it. New values are made in `arena`.
Value WithNames(ValueArena& arena, const Value& optimizer,
                const OptimizerNames& names);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_RANKS_OPTIMIZER_NAMES_H_
