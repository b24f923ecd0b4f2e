// SPDX-License-Identifier: Apache-2.0

#include "dcp/mapping/equations/equation.h"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/glob_set.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/mapping/equations/instance_pieces.h"
#include "dcp/mapping/equations/instance_sizes.h"
#include "dcp/mapping/equations/rule_report.h"

namespace dcp {
namespace {

std::string TermsText(const std::vector<MappingTerm>& terms) {
  return absl::StrJoin(
      terms, ", ", [](std::string* out, const MappingTerm& term) {
        absl::StrAppend(out, term.name.has_value() ? term.name->text() : "0");
      });
}

// The variables in one side's names. All names on that side have the same ones.
std::vector<NameTemplate::Variable> TermVariables(
    const std::vector<MappingTerm>& terms) {
  for (const MappingTerm& term : terms) {
    if (term.name.has_value()) return term.name->variables();
  }
  return {};
}

bool HasName(const std::vector<MappingTerm>& terms) {
  return std::any_of(terms.begin(), terms.end(), [](const MappingTerm& term) {
    return term.name.has_value();
  });
}

bool Contains(const std::vector<NameTemplate::Variable>& variables,
              const NameTemplate::Variable& variable) {
  return std::find(variables.begin(), variables.end(), variable) !=
         variables.end();
}

}  // namespace

std::optional<size_t> EquationSources::Find(absl::string_view name) const {
  const auto it = std::lower_bound(
      sources.begin(), sources.end(), name,
      [](const Source& a, absl::string_view b) { return a.name < b; });
  if (it == sources.end() || it->name != name) return std::nullopt;
  return static_cast<size_t>(it - sources.begin());
}

Equation::Equation(const MappingFile& file, const MappingRule& rule,
                   const std::string& from, const std::string& to,
                   const std::vector<std::string>& allow_missing,
                   ModelSizes& sizes, EquationSources& sources,
                   MappedBuilder& builder)
    : file_(file),
      rule_(rule),
      from_(from),
      to_(to),
      allow_missing_(allow_missing),
      model_(sizes),
      sources_(sources),
      builder_(builder) {}

absl::Status Equation::Apply() {
  RuleReport report;
  report.file = file_.file_name;
  report.line = rule_.line;
  const absl::Status applied = ApplyHere(report);
  if (!applied.ok()) {
    return Annotate(applied, file_.file_name, ":", rule_.line);
  }
  if (report.num_instances > 0) {
    builder_.result().rules.push_back(std::move(report));
  }
  return absl::OkStatus();
}

// `first` is the number of the instance's first piece.
absl::Status Equation::RescalePieces(size_t first) {
  const auto of = [&](const std::string& side) {
    const auto it = rule_.rescaled.find(side);
    return it == rule_.rescaled.end() ? Rescale() : it->second;
  };
  const Rescale from = of(from_);
  const Rescale to = of(to_);
  if (from == to) return absl::OkStatus();
  if (sources_.are_states) {
    return absl::FailedPreconditionError(
        "the state of an optimizer cannot be converted by a rule with add or "
        "scale; say `of: model` in it, and how states are converted in another "
        "rule with `of: states`");
  }
  return builder_.RescalePieces(first, from, to);
}

absl::Status Equation::ApplyHere(RuleReport& report) {
  DCP_RETURN_IF_ERROR(Prepare());
  report.text =
      absl::StrCat(TermsText(sides_.src), " -> ", TermsText(sides_.dst));
  if (IsVoid()) return absl::OkStatus();
  DCP_RETURN_IF_ERROR(Match());
  if (!HasName(sides_.src) && !sources_.are_states) {
    // There are only constants, so there is nothing to match.
    instances_[{}].found.resize(sides_.src.size());
  }
  DCP_RETURN_IF_ERROR(CheckInstancesComplete());
  for (auto& [key, instance] : instances_) {
    CompleteStacked(instance);
    DCP_RETURN_IF_ERROR(CheckFound(instance));
    DCP_RETURN_IF_ERROR(Take(instance));
    DCP_ASSIGN_OR_RETURN(const InstanceSizes sizes,
                         SolveSizes(rule_, sides_, instance, sources_, model_));
    const size_t num_tensors = builder_.result().tensors.size();
    const size_t num_pieces = builder_.result().pieces.size();
    DCP_RETURN_IF_ERROR(
        InstancePieces(rule_, sides_, instance, sizes, sources_, builder_)
            .Make(to_));
    DCP_RETURN_IF_ERROR(RescalePieces(num_pieces));
    DCP_RETURN_IF_ERROR(TakeTies(instance, report));
    ReportInstance(instance, sources_,
                   {.made = builder_.result(),
                    .first_tensor = num_tensors,
                    .first_piece = num_pieces},
                   report);
  }
  return absl::OkStatus();
}

absl::Status Equation::Prepare() {
  sides_.src = rule_.sides.at(from_);
  sides_.dst = rule_.sides.at(to_);
  for (std::vector<MappingTerm>* terms : {&sides_.src, &sides_.dst}) {
    for (MappingTerm& term : *terms) {
      if (!term.name.has_value()) continue;
      DCP_RETURN_IF_ERROR(term.name->Resolve(
          [this](absl::string_view name) { return model_.FindValue(name); }));
    }
  }
  const std::vector<NameTemplate::Variable> src = TermVariables(sides_.src);
  const std::vector<NameTemplate::Variable> dst = TermVariables(sides_.dst);
  for (const NameTemplate::Variable& variable : src) {
    if (Contains(dst, variable)) {
      sides_.shared.push_back(variable);
    } else {
      sides_.stacked.push_back(variable.name);
    }
  }
  for (const NameTemplate::Variable& variable : dst) {
    if (!Contains(src, variable)) sides_.spread.push_back(variable.name);
  }
  return PrepareRanges();
}

absl::Status Equation::PrepareRanges() {
  std::set<std::string> names(sides_.stacked.begin(), sides_.stacked.end());
  names.insert(sides_.spread.begin(), sides_.spread.end());
  for (const NameTemplate::Variable& variable : sides_.shared) {
    if (variable.is_index) names.insert(variable.name);
  }
  const std::set<std::string> indices = names;
  for (const std::vector<MappingTerm>* terms : {&sides_.src, &sides_.dst}) {
    for (const MappingTerm& term : *terms) {
      for (size_t k = 0; k < term.axes.num_summands(); ++k) {
        for (std::string& axis : term.axes.SummandAxes(k)) {
          names.insert(std::move(axis));
        }
      }
    }
  }
  for (const std::string& name : names) {
    DCP_ASSIGN_OR_RETURN(const std::optional<uint64_t> size,
                         model_.FindKnownSize(name));
    if (!size.has_value()) continue;
    sides_.sizes[name] = *size;
    if (indices.contains(name))
      sides_.ranges[name] = {.first = 0, .count = *size};
  }
  for (const MappingRule::Range& range : rule_.ranges) {
    if (!names.contains(range.index)) continue;
    DCP_ASSIGN_OR_RETURN(const int64_t first, model_.FindValue(range.first));
    DCP_ASSIGN_OR_RETURN(const int64_t end, model_.FindValue(range.end));
    if (first < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the range of ", range.index, " begins at ", first));
    }
    const uint64_t count =
        end > first ? static_cast<uint64_t>(end - first) : uint64_t{0};
    sides_.ranges[range.index] = {.first = static_cast<uint64_t>(first),
                                  .count = count};
    sides_.sizes[range.index] = count;
  }
  return absl::OkStatus();
}

bool Equation::IsVoid() const {
  return std::any_of(sides_.ranges.begin(), sides_.ranges.end(),
                     [](const auto& entry) { return entry.second.count == 0; });
}

bool Equation::IsInRange(const std::string& index, uint64_t value) const {
  const auto it = sides_.ranges.find(index);
  return it == sides_.ranges.end() ||
         (value >= it->second.first &&
          value - it->second.first < it->second.count);
}

absl::Status Equation::Match() {
  for (size_t term = 0; term < sides_.src.size(); ++term) {
    if (sides_.src[term].name.has_value()) {
      DCP_RETURN_IF_ERROR(MatchTerm(term));
    }
  }
  return absl::OkStatus();
}

absl::Status Equation::MatchTerm(size_t term) {
  const NameTemplate& name = *sides_.src[term].name;
  const absl::string_view prefix = name.prefix();
  const auto begin =
      std::lower_bound(sources_.sources.begin(), sources_.sources.end(), prefix,
                       [](const EquationSources::Source& a,
                          absl::string_view b) { return a.name < b; });
  for (auto it = begin;
       it != sources_.sources.end() && absl::StartsWith(it->name, prefix);
       ++it) {
    DCP_RETURN_IF_ERROR(builder_.CountComparisons(1));
    const std::optional<std::vector<NameValue>> values = name.Match(it->name);
    if (!values.has_value()) continue;
    DCP_RETURN_IF_ERROR(AddMatch(
        term, static_cast<size_t>(it - sources_.sources.begin()), *values));
  }
  return absl::OkStatus();
}

absl::Status Equation::AddMatch(size_t term, size_t source,
                                const std::vector<NameValue>& values) {
  std::vector<NameValue> key(sides_.shared.size());
  std::vector<uint64_t> at(sides_.stacked.size());
  const std::vector<NameTemplate::Variable>& variables =
      sides_.src[term].name->variables();
  for (size_t v = 0; v < variables.size(); ++v) {
    if (variables[v].is_index &&
        !IsInRange(variables[v].name, values[v].number)) {
      return absl::OkStatus();
    }
    const auto it =
        std::find(sides_.shared.begin(), sides_.shared.end(), variables[v]);
    if (it != sides_.shared.end()) {
      key[static_cast<size_t>(it - sides_.shared.begin())] = values[v];
    } else {
      const auto stacked = std::find(sides_.stacked.begin(),
                                     sides_.stacked.end(), variables[v].name);
      at[static_cast<size_t>(stacked - sides_.stacked.begin())] =
          values[v].number;
    }
  }
  EquationInstance& instance = instances_[key];
  instance.shared = std::move(key);
  instance.found.resize(sides_.src.size());
  instance.found[term][std::move(at)] = source;
  return absl::OkStatus();
}

// A shared index with a known size must have all values, and a choice all
// texts, for every combination of the other variables. A rule that may match
// nothing must be complete if it matches anything.
absl::Status Equation::CheckInstancesComplete() {
  // An optimizer has states only for the layers that it trains.
  if (sources_.are_states) return absl::OkStatus();
  if (instances_.empty() && rule_.optional.has_value()) {
    DCP_ASSIGN_OR_RETURN(const int64_t is_optional,
                         model_.FindValue(*rule_.optional));
    if (is_optional != 0) return absl::OkStatus();
  }
  const size_t num_missing = builder_.result().missing.size();
  DCP_RETURN_IF_ERROR(ForEachLacking(sides_, instances_, builder_,
                                     [this](const LackingInstance& lacking) {
                                       return AllowMissing(lacking);
                                     }));
  if (!instances_.empty() || builder_.result().missing.size() > num_missing) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat("nothing is found for ", TermsText(sides_.src)));
}

bool Equation::MayBeMissing(absl::string_view name) const {
  return std::any_of(
      allow_missing_.begin(), allow_missing_.end(),
      [&](const std::string& glob) { return MatchesGlob(glob, name); });
}

absl::Status Equation::AllowMissing(const LackingInstance& lacking) {
  const bool is_allowed =
      !lacking.names.empty() &&
      std::all_of(lacking.names.begin(), lacking.names.end(),
                  [&](const std::string& name) { return MayBeMissing(name); });
  if (is_allowed) {
    std::vector<std::string>& missing = builder_.result().missing;
    missing.insert(missing.end(), lacking.names.begin(), lacking.names.end());
    return absl::OkStatus();
  }
  return OptionError(
      absl::StatusCode::kDataLoss,
      instances_.empty()
          ? absl::StrCat("nothing is found for ", TermsText(sides_.src))
          : absl::StrCat(TermsText(sides_.src), " lacks ", lacking.values),
      "; there is no ", absl::StrJoin(lacking.names, ", "),
      "; to map the rest without it, name it in ", OptionName{"allow_missing"});
}

// The ranges of stacked indices: from the model, or else up to the largest
// index found.
void Equation::CompleteStacked(EquationInstance& instance) const {
  instance.stacked.resize(sides_.stacked.size());
  for (size_t v = 0; v < sides_.stacked.size(); ++v) {
    if (const auto it = sides_.ranges.find(sides_.stacked[v]);
        it != sides_.ranges.end()) {
      instance.stacked[v] = it->second;
      continue;
    }
    for (const auto& found : instance.found) {
      for (const auto& [at, source] : found) {
        instance.stacked[v].count =
            std::max(instance.stacked[v].count, at[v] + 1);
      }
    }
  }
}

absl::Status Equation::CheckFound(const EquationInstance& instance) const {
  const EquationSources::Source* first = nullptr;
  for (size_t term = 0; term < sides_.src.size(); ++term) {
    if (!sides_.src[term].name.has_value()) continue;
    const std::string& text = sides_.src[term].name->text();
    const auto& found = instance.found[term];
    if (found.empty()) {
      const auto other =
          std::find_if(instance.found.begin(), instance.found.end(),
                       [](const auto& names) { return !names.empty(); });
      const size_t source = other->begin()->second;
      return absl::DataLossError(absl::StrCat(
          text, " is missing where ", sources_.sources[source].name, " is"));
    }
    std::set<std::vector<uint64_t>> values;
    for (const auto& [at, source] : found) values.insert(at);
    const std::optional<std::vector<uint64_t>> lacking =
        FirstLacking(instance.stacked, values);
    if (lacking.has_value()) {
      return absl::DataLossError(absl::StrCat(
          text, " lacks ", IndicesText(sides_.stacked, *lacking), "; there is ",
          sources_.sources[found.begin()->second].name));
    }
    const MappingTensor& of_term =
        *sources_.sources[found.begin()->second].tensor;
    if (first == nullptr) first = &sources_.sources[found.begin()->second];
    for (const auto& [at, source] : found) {
      const MappingTensor& tensor = *sources_.sources[source].tensor;
      if (tensor.dtype != first->tensor->dtype) {
        return absl::DataLossError(absl::StrCat(
            first->name, " is ", TorchName(first->tensor->dtype), ", and ",
            sources_.sources[source].name, ", which becomes one with it, is ",
            TorchName(tensor.dtype)));
      }
      if (tensor.shape != of_term.shape) {
        return absl::DataLossError(absl::StrCat(
            of_term.name, " has the shape ", ShapeToString(of_term.shape),
            ", and ", tensor.name, ", which is stacked with it, has ",
            ShapeToString(tensor.shape)));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Equation::Take(EquationInstance& instance) {
  for (const auto& found : instance.found) {
    for (const auto& [at, place] : found) {
      EquationSources::Source& source = sources_.sources[place];
      if (source.taker != nullptr) {
        return absl::FailedPreconditionError(
            absl::StrCat("the rule of line ", source.taker->line, " takes ",
                         source.name, " too"));
      }
      source.taker = &rule_;
    }
  }
  return absl::OkStatus();
}

// Names that equal the first term: sources that must be there or may be, and
// destinations that are written too. Neither has variables.
absl::Status Equation::TakeTies(EquationInstance& instance,
                                RuleReport& report) {
  const auto tie = [&](const auto& ties, bool is_required) -> absl::Status {
    const auto it = ties.find(from_);
    if (it == ties.end()) return absl::OkStatus();
    const EquationSources::Source& first =
        sources_.sources[instance.found[0].begin()->second];
    for (const std::string& name : it->second) {
      const std::optional<size_t> place = sources_.Find(name);
      if (!place.has_value()) {
        if (!is_required || sources_.are_states) continue;
        if (MayBeMissing(name)) {
          builder_.result().missing.push_back(name);
          continue;
        }
        return absl::DataLossError(
            absl::StrCat(name, " is missing; it has to equal ", first.name));
      }
      DCP_RETURN_IF_ERROR(TakeTie(name, *first.tensor, first.number));
      ++report.num_sources;
    }
    return absl::OkStatus();
  };
  DCP_RETURN_IF_ERROR(tie(rule_.copies, /*is_required=*/true));
  return tie(rule_.tolerated, /*is_required=*/false);
}

absl::Status Equation::TakeTie(absl::string_view name,
                               const MappingTensor& first,
                               uint32_t first_number) {
  EquationSources::Source& source = sources_.sources[*sources_.Find(name)];
  if (source.taker != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the rule of line ", source.taker->line, " takes ", name, " too"));
  }
  source.taker = &rule_;
  if (source.tensor->dtype != first.dtype ||
      source.tensor->shape != first.shape) {
    return absl::DataLossError(absl::StrCat(
        name, " is tied to ", first.name,
        " and has another type or shape: ", ShapeToString(source.tensor->shape),
        ", not ", ShapeToString(first.shape)));
  }
  DCP_RETURN_IF_ERROR(builder_.Reserve(1));
  return builder_.AddTie(
      WholePiece(first_number, source.number, source.tensor->shape));
}

}  // namespace dcp
