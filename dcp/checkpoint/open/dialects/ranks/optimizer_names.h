// OptimizerNames: which parameter each number in a torch.optim state_dict()
// means. Such a dict counts parameters in the order in which the optimizer got
// them; the names are found by comparing with a state dict of the model. Pure;
// any thread.
#ifndef DCP_CHECKPOINT_OPEN_DIALECTS_RANKS_OPTIMIZER_NAMES_H_
#define DCP_CHECKPOINT_OPEN_DIALECTS_RANKS_OPTIMIZER_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "dcp/format/value.h"
#include "dcp/tensor/box.h"

namespace dcp {

using OptimizerNames = absl::flat_hash_map<int64_t, std::string>;

// The names of the parameters of `optimizer`, {"state": ..., "param_groups":
// ...}, which `model` holds. They are those of the model's sharded tensors (of
// all tensors if none is sharded) in order, without repetitions of tied ones.
// Empty if that is not certain: there are several groups, whose parameters may
// come in any order, or the numbers of parameters or the shapes differ.
OptimizerNames FindOptimizerNames(const Value& model, const Value& optimizer);

// The names and whole shapes of the tensors that FindOptimizerNames compares
// with, in order.
std::vector<std::pair<std::string, Dims>> ParametersOf(const Value& model);

// The numbers in the only group of `optimizer`; nullopt if there are several
// groups or if the group has names.
std::optional<std::vector<int64_t>> NumbersOf(const Value& optimizer);

// `groups`, a list of param_groups, with the names of each number in its place.
// New values are made in `arena`.
Value GroupsWithNames(
    ValueArena& arena, const Value& groups,
    const absl::flat_hash_map<int64_t, std::vector<std::string>>& names);

// `optimizer` with names in place of numbers, as get_optimizer_state_dict makes
// it. New values are made in `arena`.
Value WithNames(ValueArena& arena, const Value& optimizer,
                const OptimizerNames& names);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OPEN_DIALECTS_RANKS_OPTIMIZER_NAMES_H_
