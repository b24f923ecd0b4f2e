// SPDX-License-Identifier: Apache-2.0

#include "dcp/mapping/trial/invented_model.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/status.h"
#include "dcp/mapping/language/axes.h"
#include "dcp/mapping/language/mapping_file.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "dcp/mapping/language/name_template.h"
#include "dcp/tensor/box.h"

namespace dcp {
namespace {

// Half of them are powers of two, because head and group counts must divide
// each other.
constexpr std::array<int64_t, 8> kNumbers = {1, 2, 4, 8, 2, 3, 4, 6};
// If the formulas can be satisfied, a few attempts suffice.
constexpr int kMaxAttempts = 2000;
// The number of values for an index without a limit.
constexpr uint64_t kNumUnlimited = 2;
constexpr uint64_t kMaxAxis = 4;

class Inventor {
 public:
  Inventor(const Mapping& mapping, const Invention& invention)
      : file_(mapping.file()), invention_(invention), random_(invention.seed) {}

  absl::StatusOr<InventedModel> Invent() {
    DCP_RETURN_IF_ERROR(FindNumbers());
    const MappingSide& pivot = file_.sides.front();
    const MappingSide& side = *file_.FindSide(invention_.side);
    if (invention_.states &&
        (!pivot.states.has_value() || !side.states.has_value())) {
      return std::move(model_);
    }
    const MappingRule::Part other = invention_.states
                                        ? MappingRule::Part::kModel
                                        : MappingRule::Part::kStates;
    for (const MappingRule& rule : file_.rules) {
      if (!rule.sides.contains(side.name) || rule.part == other) continue;
      const absl::Status added = AddRule(rule);
      if (!added.ok()) {
        return Annotate(added, file_.file_name, ":", rule.line);
      }
    }
    for (auto& [name, shape] : shapes_) {
      model_.tensors.push_back({.name = name, .shape = std::move(shape)});
    }
    return std::move(model_);
  }

 private:
  // The names in formulas that need made-up values.
  absl::StatusOr<std::vector<std::string>> UnknownNames() const {
    DCP_ASSIGN_OR_RETURN(
        ModelSizes sizes,
        ModelSizes::Create(file_, invention_.config, invention_.settings));
    std::set<std::string> names;
    for (const MappingFile::Size& size : file_.config) {
      for (const Formula& formula : size.formulas) {
        for (std::string& name : formula.Names()) names.insert(name);
      }
    }
    for (const MappingRule& rule : file_.rules) {
      if (rule.when.has_value()) {
        for (std::string& name : rule.when->Names()) names.insert(name);
      }
      for (const MappingRule::Range& range : rule.ranges) {
        for (std::string& name : range.first.Names()) names.insert(name);
        for (std::string& name : range.end.Names()) names.insert(name);
      }
    }
    for (const auto& [name, value] : file_.params) names.insert(name);
    std::vector<std::string> unknown;
    for (const std::string& name : names) {
      if (invention_.settings.contains(name) ||
          file_.FindSize(name) != nullptr) {
        continue;
      }
      if (file_.params.contains(name) ||
          absl::IsNotFound(sizes.FindValue(name).status())) {
        unknown.push_back(name);
      }
    }
    return unknown;
  }

  // Whether all formulas in the file have values that make sense.
  absl::Status CheckNumbers(const MappingSettings& settings) {
    DCP_ASSIGN_OR_RETURN(
        ModelSizes sizes,
        ModelSizes::Create(file_, invention_.config, settings));
    for (const MappingFile::Size& size : file_.config) {
      DCP_ASSIGN_OR_RETURN(const int64_t value, sizes.FindValue(size.name));
      if (value < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("the size of ", size.name, " is ", value));
      }
    }
    for (const MappingRule& rule : file_.rules) {
      if (rule.when.has_value()) {
        DCP_RETURN_IF_ERROR(sizes.FindValue(*rule.when).status());
      }
    }
    return absl::OkStatus();
  }

  absl::Status FindNumbers() {
    DCP_ASSIGN_OR_RETURN(const std::vector<std::string> unknown,
                         UnknownNames());
    absl::Status problem;
    for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
      MappingSettings settings = invention_.settings;
      for (const std::string& name : unknown) {
        // A name that has a default or is optional is left alone half of the
        // time.
        if (random_() % 2 == 0) settings[name] = Pick();
      }
      problem = CheckNumbers(settings);
      if (!problem.ok()) continue;
      model_.settings = std::move(settings);
      DCP_ASSIGN_OR_RETURN(sizes_, ModelSizes::Create(file_, invention_.config,
                                                      model_.settings));
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "no small numbers satisfy the formulas of ", file_.file_name,
        ", the last because ", problem.message(), "; give a config.json"));
  }

  int64_t Pick() { return kNumbers[random_() % kNumbers.size()]; }

  // The parts of one rule's names and shapes.
  struct Parts {
    std::map<std::string, uint64_t> first;  // index values
    std::map<std::string, uint64_t> count;
    AxisSizes sizes;
    size_t rest = 0;  // how many dimensions "..." stands for
  };

  absl::Status AddRule(const MappingRule& rule) {
    if (rule.when.has_value()) {
      DCP_ASSIGN_OR_RETURN(const int64_t when, sizes_->FindValue(*rule.when));
      if (when == 0) return absl::OkStatus();
    }
    Parts parts;
    parts.rest = random_() % 3;
    for (const MappingRule::Range& range : rule.ranges) {
      DCP_ASSIGN_OR_RETURN(const int64_t first, sizes_->FindValue(range.first));
      DCP_ASSIGN_OR_RETURN(const int64_t end, sizes_->FindValue(range.end));
      parts.first[range.index] =
          static_cast<uint64_t>(std::max<int64_t>(first, 0));
      parts.count[range.index] =
          static_cast<uint64_t>(std::max<int64_t>(end - first, 0));
    }
    std::vector<MappingTerm> terms = rule.sides.at(file_.pivot());
    for (MappingTerm& term : terms) {
      term.axes = term.axes.WithRest(parts.rest);
      DCP_RETURN_IF_ERROR(AddSizes(term, parts));
    }
    for (const MappingTerm& term : terms) {
      if (term.name.has_value()) DCP_RETURN_IF_ERROR(AddTerm(term, parts));
    }
    const auto copies = rule.copies.find(file_.pivot());
    if (copies == rule.copies.end() || !terms[0].name.has_value()) {
      return absl::OkStatus();
    }
    DCP_ASSIGN_OR_RETURN(const Dims shape, MakeShape(terms[0], parts));
    for (const std::string& name : copies->second) {
      DCP_RETURN_IF_ERROR(AddTensor(name, shape));
    }
    return absl::OkStatus();
  }

  // Adds the sizes that a term has and no earlier term had.
  absl::Status AddSizes(const MappingTerm& term, Parts& parts) {
    for (size_t k = 0; k < term.axes.num_summands(); ++k) {
      for (const std::string& axis : term.axes.SummandAxes(k)) {
        if (parts.sizes.contains(axis)) continue;
        const auto range = parts.count.find(axis);
        if (range != parts.count.end()) {
          parts.sizes[axis] = range->second;
          continue;
        }
        DCP_ASSIGN_OR_RETURN(const std::optional<uint64_t> size,
                             sizes_->FindKnownSize(axis));
        parts.sizes[axis] = size.value_or(1 + random_() % kMaxAxis);
      }
    }
    if (!term.name.has_value()) return absl::OkStatus();
    for (const NameTemplate::Variable& variable : term.name->variables()) {
      if (!variable.is_index || parts.count.contains(variable.name)) continue;
      DCP_ASSIGN_OR_RETURN(const std::optional<uint64_t> size,
                           sizes_->FindKnownSize(variable.name));
      parts.count[variable.name] = size.value_or(kNumUnlimited);
    }
    return absl::OkStatus();
  }

  static absl::StatusOr<Dims> MakeShape(const MappingTerm& term,
                                        const Parts& parts) {
    Dims shape;
    for (size_t dim = 0; dim < term.axes.dims().size(); ++dim) {
      const std::optional<uint64_t> extent =
          term.axes.DimExtent(dim, parts.sizes);
      if (!extent.has_value()) return TooLarge();
      shape.push_back(static_cast<int64_t>(*extent));
    }
    return shape;
  }

  static absl::Status TooLarge() {
    return absl::ResourceExhaustedError(
        absl::StrCat("the tensors have more than ", kMaxInventedElements,
                     " elements; give a smaller model, or let maps check look "
                     "at shapes alone"));
  }

  // Adds a tensor for each combination of the variables' values.
  absl::Status AddTerm(const MappingTerm& term, const Parts& parts) {
    NameTemplate name = *term.name;
    DCP_RETURN_IF_ERROR(name.Resolve(
        [this](absl::string_view word) { return sizes_->FindValue(word); }));
    DCP_ASSIGN_OR_RETURN(const Dims shape, MakeShape(term, parts));
    std::vector<std::vector<NameValue>> values;
    for (size_t v = 0; v < name.variables().size(); ++v) {
      const NameTemplate::Variable& variable = name.variables()[v];
      std::vector<NameValue>& choices = values.emplace_back();
      if (!variable.is_index) {
        for (std::string& text : name.TextsFor(v)) {
          choices.push_back({.text = std::move(text)});
        }
        continue;
      }
      const auto first = parts.first.find(variable.name);
      const uint64_t count = parts.count.at(variable.name);
      if (count > kMaxMappedPieces) return TooLarge();
      for (uint64_t i = 0; i < count; ++i) {
        choices.push_back(
            {.number = i + (first == parts.first.end() ? 0 : first->second),
             .text = {}});
      }
    }
    std::vector<NameValue> chosen;
    return AddNames(name, values, shape, chosen);
  }

  absl::Status AddNames(const NameTemplate& name,
                        const std::vector<std::vector<NameValue>>& values,
                        const Dims& shape, std::vector<NameValue>& chosen) {
    if (chosen.size() == values.size()) {
      return AddTensor(name.Format(chosen), shape);
    }
    for (const NameValue& value : values[chosen.size()]) {
      chosen.push_back(value);
      DCP_RETURN_IF_ERROR(AddNames(name, values, shape, chosen));
      chosen.pop_back();
    }
    return absl::OkStatus();
  }

  absl::Status AddTensor(const std::string& name, const Dims& shape) {
    const std::optional<int64_t> volume = CheckedVolume(shape);
    // A tensor without elements takes room too.
    num_elements_ = CheckedAdd(num_elements_,
                               static_cast<uint64_t>(volume.value_or(-1)) + 1)
                        .value_or(kMaxInventedElements + 1);
    if (!volume.has_value() || num_elements_ > kMaxInventedElements) {
      return TooLarge();
    }
    if (!invention_.states) {
      shapes_.emplace(name, shape);
      return absl::OkStatus();
    }
    // Two states for each parameter: one with the same shape, and a scalar.
    const NameTemplate& states = *file_.sides.front().states;
    const bool is_param_first = states.variables()[0].name == "param";
    for (const auto& [slot, of_slot] :
         {std::pair("exp_avg", shape), std::pair("step", Dims())}) {
      const NameValue param{.number = 0, .text = name};
      const NameValue text{.number = 0, .text = slot};
      shapes_.emplace(is_param_first ? states.Format({param, text})
                                     : states.Format({text, param}),
                      of_slot);
    }
    return absl::OkStatus();
  }

  const MappingFile& file_;
  const Invention& invention_;
  std::mt19937 random_;
  std::optional<ModelSizes> sizes_;
  InventedModel model_;
  std::map<std::string, Dims> shapes_;
  uint64_t num_elements_ = 0;
};

}  // namespace

absl::StatusOr<InventedModel> InventModel(const Mapping& mapping,
                                          const Invention& invention) {
  const MappingFile& file = mapping.file();
  if (file.FindSide(invention.side) == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the mapping ", file.name, " has no side '", invention.side, "'"));
  }
  return Inventor(mapping, invention).Invent();
}

}  // namespace dcp
