// SPDX-License-Identifier: Apache-2.0

#include "dcp/mapping/application/name_spelling.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/mapping/language/mapping_file.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "dcp/mapping/language/name_template.h"

namespace dcp {
namespace {

// The names that one side may have.
class Spelling {
 public:
  Spelling(const MappingFile& file, const MappingSide& side, ModelSizes& sizes)
      : side_(side), sizes_(sizes) {
    for (const MappingRule& rule : file.rules) AddRule(rule);
    for (const NameTemplate& name : side.drop) Add(name);
  }

  absl::StatusOr<bool> Knows(absl::string_view name) {
    std::string spelled(name);
    if (side_.states.has_value()) {
      if (const auto values = side_.states->Match(name)) {
        const bool is_param_first =
            side_.states->variables()[0].name == "param";
        spelled = (*values)[is_param_first ? 0 : 1].text;
      }
    }
    DCP_ASSIGN_OR_RETURN(const bool is_known, KnowsParameter(spelled));
    if (is_known || !side_.blocks.has_value()) return is_known;
    // The rules are about the decoded weights, not codes and scales.
    const MappingBlocks& blocks = *side_.blocks;
    for (const NameTemplate* form : {&blocks.codes, &blocks.scales}) {
      const auto values = form->Match(spelled);
      if (!values.has_value()) continue;
      DCP_ASSIGN_OR_RETURN(const bool is_block,
                           KnowsParameter(blocks.weight.Format(*values)));
      if (is_block) return true;
    }
    return false;
  }

 private:
  absl::StatusOr<bool> KnowsParameter(const std::string& spelled) {
    if (exact_.contains(spelled)) return true;
    num_comparisons_ += forms_.size();
    if (num_comparisons_ > kMaxNameComparisons) {
      return absl::ResourceExhaustedError(
          absl::StrCat("to find out how the source is spelled takes more than ",
                       kMaxNameComparisons, " comparisons of names"));
    }
    return std::any_of(forms_.begin(), forms_.end(),
                       [&](const NameTemplate& form) {
                         return form.Match(spelled).has_value();
                       });
  }

  void AddRule(const MappingRule& rule) {
    const auto terms = rule.sides.find(side_.name);
    if (terms == rule.sides.end()) return;
    if (rule.when.has_value()) {
      const absl::StatusOr<int64_t> when = sizes_.FindValue(*rule.when);
      if (when.ok() && *when == 0) return;
    }
    for (const MappingTerm& term : terms->second) {
      if (term.name.has_value()) Add(*term.name);
    }
    for (const auto* names : {&rule.copies, &rule.tolerated}) {
      const auto it = names->find(side_.name);
      if (it == names->end()) continue;
      exact_.insert(it->second.begin(), it->second.end());
    }
  }

  // A name with an offset of unknown size is not compared.
  void Add(NameTemplate name) {
    const absl::Status resolved = name.Resolve(
        [this](absl::string_view word) { return sizes_.FindValue(word); });
    if (resolved.ok()) forms_.push_back(std::move(name));
  }

  const MappingSide& side_;
  ModelSizes& sizes_;
  std::vector<NameTemplate> forms_;
  absl::flat_hash_set<std::string> exact_;
  uint64_t num_comparisons_ = 0;
};

}  // namespace

std::string LackingPrefix(const MappingSide& side,
                          absl::Span<const std::string> names) {
  const auto has_it = [&](const std::string& name) {
    return absl::StartsWith(name, side.may_lack);
  };
  return std::any_of(names.begin(), names.end(), has_it) ? "" : side.may_lack;
}

absl::StatusOr<std::optional<std::string>> FirstUnknownName(
    const MappingFile& file, absl::string_view side,
    absl::Span<const std::string> names, absl::string_view config,
    const MappingSettings& settings) {
  const MappingSide* found = file.FindSide(side);
  if (found == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("the mapping ", file.name, " has no side '", side, "'"));
  }
  DCP_ASSIGN_OR_RETURN(ModelSizes sizes,
                       ModelSizes::Create(file, config, settings));
  Spelling spelling(file, *found, sizes);
  const std::string prefix = LackingPrefix(*found, names);
  for (const std::string& name : names) {
    const bool is_state =
        found->states.has_value() && found->states->Match(name).has_value();
    DCP_ASSIGN_OR_RETURN(
        const bool is_known,
        spelling.Knows(is_state ? name : absl::StrCat(prefix, name)));
    if (!is_known) return name;
  }
  return std::nullopt;
}

}  // namespace dcp
