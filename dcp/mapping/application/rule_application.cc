// SPDX-License-Identifier: Apache-2.0
// Applies each rule to the model and to each slot of the optimizer, then
// handles the sources that no rule took.
// Tested by tests/dcp/mapping/application/mapping_test.cc.
#include "dcp/mapping/application/rule_application.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/status.h"
#include "dcp/mapping/application/name_spelling.h"
#include "dcp/mapping/equations/equation.h"
#include "dcp/mapping/equations/equation_sides.h"
#include "dcp/mapping/equations/instance_pieces.h"
#include "dcp/mapping/equations/mapped_builder.h"
#include "dcp/mapping/equations/rule_report.h"
#include "dcp/mapping/language/model_sizes.h"

namespace dcp {
namespace {

// Names that a message lists; the others are counted.
constexpr size_t kMaxNamesInMessage = 5;

class Application {
 public:
  Application(const MappingFile& file, absl::Span<const MappingTensor> sources,
              const MapOptions& options, ModelSizes sizes)
      : file_(file),
        sources_(sources),
        options_(options),
        from_(*file.FindSide(options.from)),
        to_(*file.FindSide(options.to)),
        sizes_(std::move(sizes)),
        builder_(static_cast<uint32_t>(sources.size())) {}

  absl::StatusOr<MappedTensors> Run() {
    Divide();
    DCP_RETURN_IF_ERROR(CheckNames());
    if (options_.parts != MapOptions::Parts::kStates) {
      // A checkpoint may have only an optimizer's state.
      const bool is_needed = !model_.sources.empty() || slots_.empty() ||
                             options_.parts == MapOptions::Parts::kModel;
      if (is_needed) {
        DCP_RETURN_IF_ERROR(Apply(model_, MappingRule::Part::kModel));
      }
    } else {
      DropAll(model_);
    }
    for (auto& [slot, states] : slots_) {
      if (options_.parts == MapOptions::Parts::kModel) {
        DropAll(states);
        continue;
      }
      if (!to_.states.has_value()) {
        return absl::FailedPreconditionError(
            absl::StrCat("the mapping ", file_.name, " does not say how ",
                         to_.name, " names the state of an optimizer, such as ",
                         states.sources[0].tensor->name,
                         "; leave it out by converting the model alone"));
      }
      DCP_RETURN_IF_ERROR(CheckShapes(slot, states));
      DCP_RETURN_IF_ERROR(Apply(states, MappingRule::Part::kStates));
    }
    MappedTensors& result = builder_.result();
    result.rules = MergeReports(std::move(result.rules));
    result.config = sizes_.used();
    return std::move(builder_).Build();
  }

 private:
  // Each slot of an optimizer's state is a set of sources by itself.
  void Divide() {
    model_.full_name = [](absl::string_view name) { return std::string(name); };
    for (size_t i = 0; i < sources_.size(); ++i) {
      EquationSources::Source source;
      source.name = sources_[i].name;
      source.number = static_cast<uint32_t>(i);
      source.tensor = &sources_[i];
      std::optional<std::vector<NameValue>> values;
      if (from_.states.has_value()) {
        values = from_.states->Match(source.name);
      }
      if (!values.has_value()) {
        model_.sources.push_back(std::move(source));
        continue;
      }
      const bool is_param_first = from_.states->variables()[0].name == "param";
      source.name = (*values)[is_param_first ? 0 : 1].text;
      const std::string slot = (*values)[is_param_first ? 1 : 0].text;
      slots_[slot].sources.push_back(std::move(source));
    }
    AddLackingPrefix();
    Sort(model_);
    for (auto& [slot, states] : slots_) {
      states.are_states = true;
      const std::string name = slot;
      states.full_name = [this, name](absl::string_view param) {
        return StateName(param, name);
      };
      Sort(states);
    }
  }

  // Parameters have the same spelling alone and in states.
  void AddLackingPrefix() {
    if (from_.may_lack.empty()) return;
    std::vector<EquationSources*> all = {&model_};
    for (auto& [slot, states] : slots_) all.push_back(&states);
    std::vector<std::string> names;
    for (const EquationSources* sources : all) {
      for (const auto& source : sources->sources) names.push_back(source.name);
    }
    const std::string prefix = LackingPrefix(from_, names);
    for (EquationSources* sources : all) {
      for (EquationSources::Source& source : sources->sources) {
        source.name = absl::StrCat(prefix, source.name);
      }
    }
  }

  static void Sort(EquationSources& sources) {
    std::sort(sources.sources.begin(), sources.sources.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
  }

  std::string StateName(absl::string_view param,
                        const std::string& slot) const {
    const bool is_param_first = to_.states->variables()[0].name == "param";
    const NameValue of_param{.number = 0, .text = std::string(param)};
    const NameValue of_slot{.number = 0, .text = slot};
    return is_param_first ? to_.states->Format({of_param, of_slot})
                          : to_.states->Format({of_slot, of_param});
  }

  absl::Status CheckNames() const {
    std::vector<const EquationSources*> all = {&model_};
    for (const auto& [slot, states] : slots_) all.push_back(&states);
    for (const EquationSources* sources : all) {
      const auto it = std::adjacent_find(
          sources->sources.begin(), sources->sources.end(),
          [](const auto& a, const auto& b) { return a.name == b.name; });
      if (it == sources->sources.end()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("two sources are called ", it->tensor->name));
    }
    return absl::OkStatus();
  }

  // The rules are right for states with their parameter's shape, and for
  // scalars.
  absl::Status CheckShapes(const std::string& slot,
                           const EquationSources& states) const {
    for (const EquationSources::Source& state : states.sources) {
      const std::optional<size_t> place = model_.Find(state.name);
      if (!place.has_value() || state.tensor->shape.empty()) continue;
      const MappingTensor& parameter = *model_.sources[*place].tensor;
      if (parameter.shape == state.tensor->shape) continue;
      return absl::DataLossError(absl::StrCat(
          "the state ", slot, " of ", parameter.name, " has the shape ",
          ShapeToString(state.tensor->shape), ", and the parameter has ",
          ShapeToString(parameter.shape),
          "; only states of the parameter's shape can be converted, so convert "
          "the model alone"));
    }
    return absl::OkStatus();
  }

  absl::Status Apply(EquationSources& sources, MappingRule::Part part) {
    for (const MappingRule& rule : file_.rules) {
      if (!rule.sides.contains(from_.name) || !rule.sides.contains(to_.name)) {
        continue;
      }
      if (rule.part != MappingRule::Part::kAll && rule.part != part) continue;
      if (rule.when.has_value()) {
        const absl::StatusOr<int64_t> when = sizes_.FindValue(*rule.when);
        if (!when.ok()) {
          return Annotate(when.status(), file_.file_name, ":", rule.line);
        }
        if (*when == 0) continue;
      }
      DCP_RETURN_IF_ERROR(Equation(file_, rule, from_.name, to_.name,
                                   options_.allow_missing, sizes_, sources,
                                   builder_)
                              .Apply());
    }
    return TakeRest(sources);
  }

  // Sources that no rule has taken: the side drops them, or the options decide.
  absl::Status TakeRest(EquationSources& sources) {
    std::vector<NameTemplate> patterns = from_.drop;
    for (NameTemplate& pattern : patterns) {
      DCP_RETURN_IF_ERROR(pattern.Resolve(
          [this](absl::string_view name) { return sizes_.FindValue(name); }));
    }
    std::vector<std::string> lost;
    size_t num_lost = 0;
    for (const EquationSources::Source& source : sources.sources) {
      if (source.taker != nullptr) continue;
      DCP_RETURN_IF_ERROR(builder_.CountComparisons(patterns.size() + 1));
      const bool is_dropped = std::any_of(
          patterns.begin(), patterns.end(), [&](const NameTemplate& pattern) {
            return pattern.Match(source.name).has_value();
          });
      if (is_dropped || options_.unmatched == MapOptions::Unmatched::kDrop) {
        builder_.result().dropped.push_back(source.tensor->name);
      } else if (options_.unmatched == MapOptions::Unmatched::kKeep) {
        DCP_RETURN_IF_ERROR(Keep(source));
      } else if (++num_lost <= kMaxNamesInMessage) {
        lost.push_back(source.tensor->name);
      }
    }
    if (num_lost == 0) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "the mapping ", file_.name, " from ", from_.name, " to ", to_.name,
        " has no rule for ", num_lost, num_lost == 1 ? " tensor" : " tensors",
        ": ", absl::StrJoin(lost, ", "), num_lost > lost.size() ? ", ..." : "",
        "; they can be dropped or kept under their names if you ask for it"));
  }

  absl::Status Keep(const EquationSources::Source& source) {
    DCP_ASSIGN_OR_RETURN(const uint32_t dst,
                         builder_.AddTensor(*source.tensor));
    builder_.result().kept.push_back(source.tensor->name);
    DCP_RETURN_IF_ERROR(builder_.Reserve(1));
    return builder_.AddPiece(
        WholePiece(source.number, dst, source.tensor->shape));
  }

  void DropAll(const EquationSources& sources) {
    for (const EquationSources::Source& source : sources.sources) {
      builder_.result().dropped.push_back(source.tensor->name);
    }
  }

  const MappingFile& file_;
  const absl::Span<const MappingTensor> sources_;
  const MapOptions& options_;
  const MappingSide& from_;
  const MappingSide& to_;
  ModelSizes sizes_;
  MappedBuilder builder_;
  EquationSources model_;
  std::map<std::string, EquationSources> slots_;
};

}  // namespace

absl::StatusOr<MappedTensors> ApplyRules(
    const MappingFile& file, absl::Span<const MappingTensor> sources,
    const MapOptions& options) {
  DCP_ASSIGN_OR_RETURN(
      ModelSizes sizes,
      ModelSizes::Create(file, options.config, options.settings));
  return Application(file, sources, options, std::move(sizes)).Run();
}

}  // namespace dcp
