// SPDX-License-Identifier: Apache-2.0
// What the steps of applying a rule of a mapping hand to each other: the
// sources, the two sides of the rule, and its instances. For equation.cc and
// what it uses; plain data; any thread.
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

// The tensors that rules are applied to: those of a model, or those of one slot
// of an optimizer's state under the names of their parameters.
struct EquationSources {
  struct Source {
    std::string name;     // as rules spell it
    uint32_t number = 0;  // as pieces count sources
    const MappingTensor* tensor = nullptr;
    const MappingRule* taker = nullptr;  // null: no rule has taken it yet
  };

  std::vector<Source> sources;  // by name
  bool are_states = false;
  // The name of a destination that rules spell like this.
  std::function<std::string(absl::string_view)> full_name;
  // Where a name is among `sources`; nullopt if it is not there.
  std::optional<size_t> Find(absl::string_view name) const;
};

// The values first, first + 1, ... of an index.
struct IndexRange {
  uint64_t first = 0;
  uint64_t count = 0;
};

// One set of tensors that a rule says are equal.
struct EquationInstance {
  // The values of the variables that both sides have in their names.
  std::vector<NameValue> shared;
  // For each source term: the values of the indices that only sources have in
  // their names, and the place of that tensor. Empty for a constant.
  std::vector<std::map<std::vector<uint64_t>, size_t>> found;
  // For each such index: its values.
  std::vector<IndexRange> stacked;
};

// By the values of the variables that both sides have in their names.
using EquationInstances = std::map<std::vector<NameValue>, EquationInstance>;

// The two sides of a rule, with what the model tells about them.
struct EquationSides {
  std::vector<MappingTerm> src;
  std::vector<MappingTerm> dst;
  // The variables that both sides have in their names, the indices that only
  // sources have, and those that only destinations have.
  std::vector<NameTemplate::Variable> shared;
  std::vector<std::string> stacked;
  std::vector<std::string> spread;
  AxisSizes sizes;
  absl::flat_hash_map<std::string, IndexRange> ranges;
};

}  // namespace dcp

#endif  // DCP_MAPPING_EQUATIONS_EQUATION_SIDES_H_
