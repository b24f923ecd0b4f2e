// SPDX-License-Identifier: Apache-2.0
// Finds the instances that a model's sizes and the choices in names require,
// but the sources lack. For equation.cc; pure; any thread.
#ifndef DCP_MAPPING_EQUATIONS_LACKING_INSTANCES_H_
#define DCP_MAPPING_EQUATIONS_LACKING_INSTANCES_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "dcp/mapping/equations/equation_sides.h"
#include "dcp/mapping/equations/mapped_builder.h"

namespace dcp {

// The first combination in `ranges` x ... that is missing from `values`, which
// is sorted and within the ranges; nullopt if all are there.
std::optional<std::vector<uint64_t>> FirstLacking(
    absl::Span<const IndexRange> ranges,
    const std::set<std::vector<uint64_t>>& values);

// "i = 3, e = 0".
std::string IndicesText(absl::Span<const std::string> names,
                        absl::Span<const uint64_t> values);

struct LackingInstance {
  std::string values;  // "i = 3, w = bias"
  // The missing tensors' names, with the first value for indices that only
  // sources have.
  std::vector<std::string> names;
};

// Calls `visit` with each missing instance: an index value within the known
// size, or a text from a choice, for each combination of the other variables
// that occurs. An error from `visit` ends this and is the result;
// ResourceExhausted if there are too many.
absl::Status ForEachLacking(
    const EquationSides& sides, const EquationInstances& instances,
    MappedBuilder& builder,
    absl::FunctionRef<absl::Status(const LackingInstance& lacking)> visit);

}  // namespace dcp

#endif  // DCP_MAPPING_EQUATIONS_LACKING_INSTANCES_H_
