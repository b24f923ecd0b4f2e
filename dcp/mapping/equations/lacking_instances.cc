// SPDX-License-Identifier: Apache-2.0
// Finds the instances that the sizes and choices require and the sources lack.
// Tested by tests/dcp/mapping/equations/equation_test.cc.
#include "dcp/mapping/equations/lacking_instances.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

// A shared variable with known values.
struct Known {
  size_t variable = 0;  // the position among the shared ones
  IndexRange range;
  std::vector<std::string> texts;  // for a choice; else empty
};

std::vector<Known> KnownVariables(const EquationSides& sides) {
  std::vector<Known> known;
  for (size_t v = 0; v < sides.shared.size(); ++v) {
    const NameTemplate::Variable& variable = sides.shared[v];
    if (variable.is_index) {
      const auto it = sides.ranges.find(variable.name);
      if (it == sides.ranges.end()) continue;
      known.push_back({.variable = v, .range = it->second, .texts = {}});
      continue;
    }
    // All names on a side have the same choices, or the first name has other
    // ones.
    for (const MappingTerm& term : sides.src) {
      if (!term.name.has_value()) continue;
      const auto& variables = term.name->variables();
      const auto at = static_cast<size_t>(
          std::find(variables.begin(), variables.end(), variable) -
          variables.begin());
      std::vector<std::string> texts = term.name->Choices(at);
      if (!texts.empty()) {
        known.push_back({.variable = v,
                         .range = {.first = 0, .count = texts.size()},
                         .texts = std::move(texts)});
      }
      break;
    }
  }
  return known;
}

uint64_t ValueNumber(const Known& known, const NameValue& value) {
  if (known.texts.empty()) return value.number;
  return static_cast<uint64_t>(
      std::find(known.texts.begin(), known.texts.end(), value.text) -
      known.texts.begin());
}

std::vector<std::string> InstanceNames(const EquationSides& sides,
                                       const std::vector<NameValue>& shared) {
  std::vector<std::string> names;
  for (const MappingTerm& term : sides.src) {
    if (!term.name.has_value()) continue;
    std::vector<NameValue> values;
    for (const NameTemplate::Variable& variable : term.name->variables()) {
      const auto it =
          std::find(sides.shared.begin(), sides.shared.end(), variable);
      if (it != sides.shared.end()) {
        values.push_back(
            shared[static_cast<size_t>(it - sides.shared.begin())]);
        continue;
      }
      const auto range = sides.ranges.find(variable.name);
      values.push_back(
          {.number = range == sides.ranges.end() ? 0 : range->second.first,
           .text = {}});
    }
    names.push_back(term.name->Format(values));
  }
  return names;
}

}  // namespace

std::optional<std::vector<uint64_t>> FirstLacking(
    absl::Span<const IndexRange> ranges,
    const std::set<std::vector<uint64_t>>& values) {
  std::vector<uint64_t> next;
  for (const IndexRange& range : ranges) {
    if (range.count == 0) return std::nullopt;
    next.push_back(range.first);
  }
  for (const std::vector<uint64_t>& value : values) {
    if (value != next) return next;
    size_t digit = ranges.size();
    while (digit > 0) {
      --digit;
      if (++next[digit] < ranges[digit].first + ranges[digit].count) break;
      next[digit] = ranges[digit].first;
      if (digit == 0) return std::nullopt;
    }
    if (ranges.empty()) return std::nullopt;
  }
  return next;
}

std::string IndicesText(absl::Span<const std::string> names,
                        absl::Span<const uint64_t> values) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < names.size(); ++i) {
    parts.push_back(absl::StrCat(names[i], " = ", values[i]));
  }
  return absl::StrJoin(parts, ", ");
}

absl::Status ForEachLacking(
    const EquationSides& sides, const EquationInstances& instances,
    MappedBuilder& builder,
    absl::FunctionRef<absl::Status(const LackingInstance& lacking)> visit) {
  const std::vector<Known> known = KnownVariables(sides);
  std::vector<IndexRange> ranges;
  for (const Known& one : known) ranges.push_back(one.range);
  // By the values of the other variables, in their order.
  std::map<std::vector<NameValue>, std::set<std::vector<uint64_t>>> groups;
  if (known.size() == sides.shared.size()) {
    groups[std::vector<NameValue>(known.size())];
  }
  for (const auto& [key, instance] : instances) {
    std::vector<NameValue> other = key;
    std::vector<uint64_t> numbers;
    for (const Known& one : known) {
      numbers.push_back(ValueNumber(one, key[one.variable]));
      other[one.variable] = NameValue();
    }
    groups[std::move(other)].insert(std::move(numbers));
  }
  for (auto& [other, there] : groups) {
    while (const auto lacking = FirstLacking(ranges, there)) {
      DCP_RETURN_IF_ERROR(builder.CountComparisons(there.size() + 1));
      std::vector<NameValue> shared = other;
      for (size_t i = 0; i < known.size(); ++i) {
        NameValue& value = shared[known[i].variable];
        if (known[i].texts.empty()) {
          value.number = (*lacking)[i];
        } else {
          value.text = known[i].texts[(*lacking)[i]];
        }
      }
      std::vector<std::string> values;
      for (size_t v = 0; v < shared.size(); ++v) {
        values.push_back(absl::StrCat(sides.shared[v].name, " = ",
                                      sides.shared[v].is_index
                                          ? absl::StrCat(shared[v].number)
                                          : shared[v].text));
      }
      DCP_RETURN_IF_ERROR(visit({.values = absl::StrJoin(values, ", "),
                                 .names = InstanceNames(sides, shared)}));
      there.insert(*lacking);
    }
  }
  return absl::OkStatus();
}

}  // namespace dcp
