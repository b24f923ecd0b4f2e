// SPDX-License-Identifier: Apache-2.0
// Solves the sizes of an instance's axes from its source shapes.
// Tested by tests/dcp/mapping/equations/equation_test.cc.
#include "dcp/mapping/equations/instance_sizes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/status.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "dcp/tensor/box.h"

namespace dcp {
namespace {

class Solver {
 public:
  Solver(const MappingRule& rule, const EquationSides& sides,
         const EquationInstance& instance, const EquationSources& sources,
         ModelSizes& model)
      : rule_(rule),
        sides_(sides),
        instance_(instance),
        sources_(sources),
        model_(model) {}

  absl::StatusOr<InstanceSizes> Solve() {
    result_.sizes = sides_.sizes;
    for (size_t v = 0; v < sides_.stacked.size(); ++v) {
      result_.sizes[sides_.stacked[v]] = instance_.stacked[v].count;
    }
    DCP_RETURN_IF_ERROR(FindType());
    if (result_.are_scalars) {
      DCP_RETURN_IF_ERROR(CheckSpread());
      return std::move(result_);
    }
    DCP_RETURN_IF_ERROR(AddEquations());
    while (!equations_.empty()) DCP_RETURN_IF_ERROR(SolveOne());
    DCP_RETURN_IF_ERROR(FinishDestinations());
    return std::move(result_);
  }

 private:
  // Dimension `dim` of a source consists of a term's axes.
  struct Equation {
    size_t term = 0;
    size_t dim = 0;
    uint64_t extent = 0;
  };

  // The first tensor for a source term; null for a constant.
  const MappingTensor* FirstTensor(size_t term) const {
    const auto& found = instance_.found[term];
    if (found.empty()) return nullptr;
    return sources_.sources[found.begin()->second].tensor;
  }

  absl::Status FindType() {
    const MappingTensor* first = nullptr;
    for (size_t term = 0; term < sides_.src.size(); ++term) {
      const MappingTensor* tensor = FirstTensor(term);
      if (tensor == nullptr) continue;
      if (first == nullptr) first = tensor;
      if (sources_.are_states &&
          tensor->shape.empty() != first->shape.empty()) {
        return absl::DataLossError(
            absl::StrCat("of ", first->name, " and ", tensor->name,
                         ", which belong together, only one is a scalar"));
      }
    }
    if (first != nullptr) {
      result_.dtype = first->dtype;
      result_.are_scalars = sources_.are_states && first->shape.empty();
      return absl::OkStatus();
    }
    if (!rule_.dtype.has_value()) {
      return absl::InvalidArgumentError(
          "the sources are constants, and the rule has no dtype");
    }
    result_.dtype = *rule_.dtype;
    return absl::OkStatus();
  }

  absl::Status AddEquations() {
    for (size_t term = 0; term < sides_.src.size(); ++term) {
      const Axes& axes = sides_.src[term].axes;
      const MappingTensor* tensor = FirstTensor(term);
      if (tensor == nullptr) continue;
      const size_t num_named = axes.dims().size() - (axes.has_rest() ? 1 : 0);
      const size_t rank = tensor->shape.size();
      if (rank < num_named || (rank > num_named && !axes.has_rest())) {
        return absl::DataLossError(absl::StrCat(
            tensor->name, " has the shape ", ShapeToString(tensor->shape),
            " where the rule has ", DimsText(axes)));
      }
      if (!axes.has_rest()) continue;
      const size_t rest = rank - num_named;
      if (rest_.has_value() && *rest_ != rest) {
        return absl::DataLossError(absl::StrCat(
            tensor->name, " has ", rest,
            " dimensions for ..., and another tensor of the rule has ",
            *rest_));
      }
      rest_ = rest;
    }
    for (size_t term = 0; term < sides_.src.size(); ++term) {
      result_.src_axes.push_back(
          sides_.src[term].axes.WithRest(rest_.value_or(0)));
      const MappingTensor* tensor = FirstTensor(term);
      if (tensor == nullptr) continue;
      for (size_t dim = 0; dim < tensor->shape.size(); ++dim) {
        equations_.push_back(
            {.term = term,
             .dim = dim,
             .extent = static_cast<uint64_t>(tensor->shape[dim])});
      }
    }
    return absl::OkStatus();
  }

  static std::string DimsText(const Axes& axes) {
    return absl::StrJoin(axes.dims(), " ",
                         [](std::string* out, const AxisDim& dim) {
                           out->append(ToString(dim));
                         });
  }

  // Solves, or checks, the equation with the fewest unknown axes.
  absl::Status SolveOne() {
    size_t best = 0;
    std::vector<std::string> unknown;
    for (size_t i = 0; i < equations_.size(); ++i) {
      std::vector<std::string> mine =
          result_.src_axes[equations_[i].term].UnknownAxes(equations_[i].dim,
                                                           result_.sizes);
      if (i == 0 || mine.size() < unknown.size()) {
        best = i;
        unknown = std::move(mine);
      }
      if (unknown.empty()) break;
    }
    const Equation equation = equations_[best];
    equations_.erase(equations_.begin() + static_cast<ptrdiff_t>(best));
    const Axes& axes = result_.src_axes[equation.term];
    if (unknown.size() > 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "cannot determine the sizes of ", absl::StrJoin(unknown, " and "),
          " in ", ToString(axes.dims()[equation.dim]),
          UnknownReasons(unknown)));
    }
    if (unknown.size() == 1) {
      DCP_RETURN_IF_ERROR(SolveAxis(equation, unknown[0]));
    }
    if (axes.DimExtent(equation.dim, result_.sizes) != equation.extent) {
      return Misfit(equation, "");
    }
    return absl::OkStatus();
  }

  // A dimension's extent is linear in each axis: a + b x.
  absl::Status SolveAxis(const Equation& equation, const std::string& axis) {
    const Axes& axes = result_.src_axes[equation.term];
    AxisSizes sizes = result_.sizes;
    sizes[axis] = 0;
    const std::optional<uint64_t> at_zero = axes.DimExtent(equation.dim, sizes);
    sizes[axis] = 1;
    const std::optional<uint64_t> at_one = axes.DimExtent(equation.dim, sizes);
    if (!at_zero.has_value() || !at_one.has_value()) {
      return Misfit(equation, absl::StrCat("exceeds ", kMaxAxisSize));
    }
    if (*at_zero > equation.extent) {
      return Misfit(equation, absl::StrCat("needs at least ", *at_zero));
    }
    const uint64_t factor = *at_one - *at_zero;
    if (factor == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "cannot determine the size of ", axis, " in ",
          ToString(axes.dims()[equation.dim]), ", which is empty"));
    }
    const uint64_t rest = equation.extent - *at_zero;
    if (rest % factor != 0) {
      return Misfit(equation,
                    *at_zero == 0
                        ? absl::StrCat("needs a multiple of ", factor)
                        : absl::StrCat("needs ", *at_zero,
                                       " and a multiple of ", factor));
    }
    result_.sizes[axis] = rest / factor;
    return absl::OkStatus();
  }

  // "NAME has 4100 rows; (group q 2 r) with group = 8 needs a multiple of 64".
  absl::Status Misfit(const Equation& equation, absl::string_view needs) const {
    const MappingTensor& tensor = *FirstTensor(equation.term);
    const Axes& axes = result_.src_axes[equation.term];
    const AxisDim& dim = axes.dims()[equation.dim];
    std::set<std::string> names(dim.before.begin(), dim.before.end());
    for (const AxisProduct& summand : dim.summands) {
      names.insert(summand.begin(), summand.end());
    }
    names.insert(dim.after.begin(), dim.after.end());
    std::vector<std::string> sizes;
    std::string settings;
    for (const std::string& name : names) {
      for (const std::string& setting : model_.AxisSettings(name)) {
        absl::StrAppend(&settings, "; --set ", setting, "=N changes ", name);
      }
      const auto it = result_.sizes.find(name);
      if (it == result_.sizes.end()) continue;
      sizes.push_back(absl::StrCat(model_.Explain(name, it->second)));
    }
    std::string wanted(needs);
    if (wanted.empty()) {
      const std::optional<uint64_t> extent =
          axes.DimExtent(equation.dim, result_.sizes);
      wanted = extent.has_value() ? absl::StrCat("is ", *extent)
                                  : absl::StrCat("exceeds ", kMaxAxisSize);
    }
    return absl::DataLossError(absl::StrCat(
        tensor.name, " has ", equation.extent,
        equation.dim == 0
            ? " rows"
            : absl::StrCat(" elements in dimension ", equation.dim),
        "; ", ToString(dim), sizes.empty() ? "" : " with ",
        absl::StrJoin(sizes, ", "), " ", wanted, settings));
  }

  std::string UnknownReasons(const std::vector<std::string>& axes) const {
    std::string text;
    for (const std::string& axis : axes) {
      const std::string why = model_.WhyUnknown(axis);
      if (!why.empty()) absl::StrAppend(&text, ": ", why);
    }
    return text;
  }

  absl::Status CheckSpread() const {
    for (const std::string& index : sides_.spread) {
      if (result_.sizes.contains(index)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("cannot determine how many values the index ", index,
                       " has", UnknownReasons({index})));
    }
    return absl::OkStatus();
  }

  absl::Status FinishDestinations() {
    DCP_RETURN_IF_ERROR(CheckSpread());
    const auto check = [&](const Axes& axes) -> absl::Status {
      for (size_t dim = 0; dim < axes.dims().size(); ++dim) {
        const std::vector<std::string> unknown =
            axes.UnknownAxes(dim, result_.sizes);
        if (unknown.empty()) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("cannot determine the size of ", unknown[0], " in ",
                         ToString(axes.dims()[dim]), UnknownReasons(unknown)));
      }
      return absl::OkStatus();
    };
    for (const MappingTerm& term : sides_.dst) {
      result_.dst_axes.push_back(term.axes.WithRest(rest_.value_or(0)));
      DCP_RETURN_IF_ERROR(check(result_.dst_axes.back()));
    }
    // Constants have no shapes from which to find sizes.
    for (const Axes& axes : result_.src_axes) DCP_RETURN_IF_ERROR(check(axes));
    return absl::OkStatus();
  }

  const MappingRule& rule_;
  const EquationSides& sides_;
  const EquationInstance& instance_;
  const EquationSources& sources_;
  ModelSizes& model_;
  InstanceSizes result_;
  std::vector<Equation> equations_;
  std::optional<size_t> rest_;  // how many dimensions "..." stands for
};

}  // namespace

absl::StatusOr<InstanceSizes> SolveSizes(const MappingRule& rule,
                                         const EquationSides& sides,
                                         const EquationInstance& instance,
                                         const EquationSources& sources,
                                         ModelSizes& model) {
  return Solver(rule, sides, instance, sources, model).Solve();
}

}  // namespace dcp
