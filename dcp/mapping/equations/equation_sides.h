// SPDX-License-Identifier: Apache-2.0
// The data that passes between the steps of applying a rule: the sources, the
// rule's two sides, and the instances. For equation.cc and the files that it
// uses; plain data; any thread.
#ifndef DCP_MAPPING_EQUATIONS_EQUATION_SIDES_H_
#define DCP_MAPPING_EQUATIONS_EQUATION_SIDES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "dcp/mapping/equations/mapped_tensors.h"
#include "dcp/mapping/language/axes.h"
#include "dcp/mapping/language/mapping_file.h"
#include "dcp/mapping/language/name_template.h"

namespace dcp {

// The tensors that rules are applied to: those of a model, or those in one slot
// of an optimizer's state under their parameters' names.
struct EquationSources {
  struct Source {
    std::string name;     // as rules spell it
    uint32_t number = 0;  // as pieces count sources
    const MappingTensor* tensor = nullptr;
    const MappingRule* taker = nullptr;  // null: no rule has taken it yet
  };

  std::vector<Source> sources;  // by name
  bool are_states = false;
  // The destination's name, for the name in the rules.
  std::function<std::string(absl::string_view)> full_name;
  // Where a name is among `sources`; nullopt if it is not there.
  std::optional<size_t> Find(absl::string_view name) const;
};

// The index values first, first + 1, and so on.
struct IndexRange {
  uint64_t first = 0;
  uint64_t count = 0;
};

// One set of tensors that a rule declares equal.
struct EquationInstance {
  // The values of the variables that occur in names on both sides.
  std::vector<NameValue> shared;
  // For each source term: the values of the indices that occur only in source
  // names, and that tensor's position. Empty for a constant.
  std::vector<std::map<std::vector<uint64_t>, size_t>> found;
  // The values of each such index.
  std::vector<IndexRange> stacked;
};

// By the values of the variables that occur in names on both sides.
using EquationInstances = std::map<std::vector<NameValue>, EquationInstance>;

// A rule's two sides, with the facts that the model adds.
struct EquationSides {
  std::vector<MappingTerm> src;
  std::vector<MappingTerm> dst;
  // The variables that occur in names on both sides, then the indices only in
  // source names, then those only in destination names.
  std::vector<NameTemplate::Variable> shared;
  std::vector<std::string> stacked;
  std::vector<std::string> spread;
  AxisSizes sizes;
  absl::flat_hash_map<std::string, IndexRange> ranges;
};

}  // namespace dcp

#endif  // DCP_MAPPING_EQUATIONS_EQUATION_SIDES_H_
