// SPDX-License-Identifier: Apache-2.0
// Checks the terms and sizes of one rule.
// Tested by tests/dcp/mapping/language/mapping_file_test.cc.
#include "dcp/mapping/language/rule_checks.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "absl/strings/str_cat.h"
#include "dcp/mapping/language/axes.h"

namespace dcp {
namespace {

std::set<std::string> Indices(const std::vector<MappingTerm>& terms,
                              bool is_index) {
  std::set<std::string> names;
  for (const MappingTerm& term : terms) {
    if (!term.name.has_value()) continue;
    for (const NameTemplate::Variable& variable : term.name->variables()) {
      if (variable.is_index == is_index) names.insert(variable.name);
    }
  }
  return names;
}

// For each summand on a side: the axes and the indices in the name.
std::vector<std::set<std::string>> Summands(
    const std::vector<MappingTerm>& terms) {
  const std::set<std::string> indices = Indices(terms, /*is_index=*/true);
  std::vector<std::set<std::string>> summands;
  for (const MappingTerm& term : terms) {
    for (size_t k = 0; k < term.axes.num_summands(); ++k) {
      const std::vector<std::string> axes = term.axes.SummandAxes(k);
      std::set<std::string>& summand =
          summands.emplace_back(axes.begin(), axes.end());
      summand.insert(indices.begin(), indices.end());
      if (term.axes.has_rest()) summand.insert(std::string(kRest));
    }
  }
  return summands;
}

// Each axis that `side` has and `other` lacks has one value for all when `side`
// is read; for the way back it must have a size.
absl::Status CheckSizes(const MappingFile& file, const MappingRule& rule,
                        const std::string& side, const std::string& other) {
  const std::vector<std::set<std::string>> mine = Summands(rule.sides.at(side));
  const std::vector<std::set<std::string>> theirs =
      Summands(rule.sides.at(other));
  std::set<std::string> told;
  for (const std::set<std::string>& summand : theirs) {
    told.insert(summand.begin(), summand.end());
  }
  for (const MappingRule::Range& range : rule.ranges) told.insert(range.index);
  for (size_t k = 0; k < mine.size(); ++k) {
    for (const std::string& axis : mine[k]) {
      if (theirs[k].contains(axis)) continue;
      if (axis != kRest &&
          (told.contains(axis) || file.FindSize(axis) != nullptr ||
           file.params.contains(axis))) {
        continue;
      }
      return absl::InvalidArgumentError(absl::StrCat(
          "summand ", k + 1, " of ", side, " has ", axis, ", but the one of ",
          other, " does not, and the size is unknown"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTerms(const std::vector<MappingTerm>& terms,
                        absl::string_view side) {
  const MappingTerm* first = nullptr;
  for (const MappingTerm& term : terms) {
    if (!term.name.has_value()) continue;
    std::vector<NameTemplate::Variable> variables = term.name->variables();
    for (const NameTemplate::Variable& variable : variables) {
      for (size_t k = 0; k < term.axes.num_summands(); ++k) {
        const std::vector<std::string> axes = term.axes.SummandAxes(k);
        if (std::find(axes.begin(), axes.end(), variable.name) != axes.end()) {
          return absl::InvalidArgumentError(
              absl::StrCat(variable.name, " is in the name \"",
                           term.name->text(), "\" and among its axes"));
        }
      }
    }
    if (first == nullptr) first = &term;
    const std::vector<MappingTerm> one = {*first};
    const std::vector<MappingTerm> two = {term};
    for (const bool is_index : {true, false}) {
      if (Indices(one, is_index) == Indices(two, is_index)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "the names \"", first->name->text(), "\" and \"", term.name->text(),
          "\" of ", side, " have different variables"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRule(const MappingFile& file, const MappingRule& rule,
                       const std::string& a, const std::string& b) {
  const std::vector<MappingTerm>& a_terms = rule.sides.at(a);
  const std::vector<MappingTerm>& b_terms = rule.sides.at(b);
  const size_t num_a = Summands(a_terms).size();
  const size_t num_b = Summands(b_terms).size();
  if (num_a != num_b) {
    return absl::InvalidArgumentError(
        absl::StrCat(a, " has ", num_a, " summands, and ", b, " has ", num_b));
  }
  if (Indices(a_terms, /*is_index=*/false) !=
      Indices(b_terms, /*is_index=*/false)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a variable that is a text is in the names of only one of ", a, " and ",
        b));
  }
  for (const auto& [side, other] : {std::pair(a, b), std::pair(b, a)}) {
    const std::set<std::string> indices =
        Indices(rule.sides.at(side), /*is_index=*/true);
    const std::set<std::string> texts =
        Indices(rule.sides.at(other), /*is_index=*/false);
    for (const std::string& index : indices) {
      if (texts.contains(index)) {
        return absl::InvalidArgumentError(absl::StrCat(
            index, " is an index in ", side, " and a text in ", other));
      }
    }
  }
  if (absl::Status checked = CheckSizes(file, rule, a, b); !checked.ok()) {
    return checked;
  }
  return CheckSizes(file, rule, b, a);
}

}  // namespace dcp
