// SPDX-License-Identifier: Apache-2.0
// Gets and sets an optimizer's hyperparameters as plain values.
//
// Tested by tests/fsdp/checkpoint/state/optimizer_kind_test.cc.
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fsdp/checkpoint/state/optimizer_kind.h"
#include "fsdp/checkpoint/state/tensor_copies.h"
#include "fsdp/optim/muon.h"

namespace fsdp {
namespace {

using Betas = Hyperparameter::Betas;
using Coefficients = Hyperparameter::Coefficients;
using Fixed = Hyperparameter::Fixed;
using Ignored = Hyperparameter::Ignored;
using Word = Hyperparameter::Word;

// A number; Python writes a whole one as an int.
std::optional<double> ParseNumber(const StateValue& value) {
  if (const auto* number = value.get_if<double>()) return *number;
  if (const auto* number = value.get_if<int64_t>()) {
    return static_cast<double>(*number);
  }
  // An optimizer may have a tensor as its lr.
  const auto* tensor = value.get_if<at::Tensor>();
  if (tensor != nullptr && tensor->defined() && tensor->numel() == 1 &&
      !tensor->is_meta() && !tensor->is_complex()) {
    return tensor->item<double>();
  }
  return std::nullopt;
}

const StateList* FindItems(const StateValue& value) {
  if (const auto* tuple = value.get_if<StateTuple>()) return &tuple->items;
  return value.get_if<StateList>();
}

// As many numbers as there are.
template <typename... Numbers>
bool ParseNumbers(const StateValue& value, Numbers&... numbers) {
  const StateList* items = FindItems(value);
  if (items == nullptr || items->size() != sizeof...(numbers)) return false;
  size_t next = 0;
  const auto parse = [&](double& number) {
    const std::optional<double> parsed = ParseNumber((*items)[next++]);
    number = parsed.value_or(0);
    return parsed.has_value();
  };
  return (parse(numbers) && ...);
}

// Sets a hyperparameter from a value; returns the problem, if any.
struct Setter {
  const StateValue& value;
  OptimizerOptions& options;

  std::string operator()(double& (*access)(OptimizerOptions&)) const {
    const std::optional<double> number = ParseNumber(value);
    if (!number.has_value()) return Wrong("a number");
    access(options) = *number;
    return "";
  }
  std::string operator()(bool& (*access)(OptimizerOptions&)) const {
    const auto* flag = value.get_if<bool>();
    if (flag == nullptr) return Wrong("a bool");
    access(options) = *flag;
    return "";
  }
  std::string operator()(int64_t& (*access)(OptimizerOptions&)) const {
    const auto* number = value.get_if<int64_t>();
    if (number == nullptr) return Wrong("an int");
    access(options) = *number;
    return "";
  }
  std::string operator()(Betas& (*access)(OptimizerOptions&)) const {
    double first = 0, second = 0;
    if (!ParseNumbers(value, first, second)) return Wrong("a pair of numbers");
    access(options) = {first, second};
    return "";
  }
  std::string operator()(Coefficients& (*access)(OptimizerOptions&)) const {
    double a = 0, b = 0, c = 0;
    if (!ParseNumbers(value, a, b, c)) return Wrong("three numbers");
    access(options) = {a, b, c};
    return "";
  }
  // The only option of this kind is Muon's.
  std::string operator()(Word& (*access)(OptimizerOptions&)) const {
    const auto* word = value.get_if<std::string>();
    if (word == nullptr && !value.is_none()) return Wrong("a text");
    if (word != nullptr && !optim::is_adjust_lr_fn(*word)) {
      return absl::StrCat("is '", *word,
                          "', which this optimizer does not support");
    }
    access(options) = word == nullptr ? Word() : Word(*word);
    return "";
  }
  std::string operator()(const Fixed& fixed) const {
    const auto* flag = value.get_if<bool>();
    if (flag == nullptr) return Wrong("a bool");
    const bool only = *fixed.value.get_if<bool>();
    if (*flag == only) return "";
    return absl::StrCat("is ", *flag ? "True" : "False",
                        ", which this optimizer does not support");
  }
  std::string operator()(const Ignored&) const { return ""; }

  std::string Wrong(absl::string_view wanted) const {
    return absl::StrCat("is ", KindName(value), ", not ", wanted);
  }
};

struct Getter {
  OptimizerOptions& options;

  StateValue operator()(double& (*access)(OptimizerOptions&)) const {
    return StateValue(access(options));
  }
  StateValue operator()(bool& (*access)(OptimizerOptions&)) const {
    return StateValue(access(options));
  }
  StateValue operator()(int64_t& (*access)(OptimizerOptions&)) const {
    return StateValue(access(options));
  }
  StateValue operator()(Betas& (*access)(OptimizerOptions&)) const {
    const auto [first, second] = access(options);
    return StateValue(StateTuple{{first, second}});
  }
  StateValue operator()(Coefficients& (*access)(OptimizerOptions&)) const {
    const auto [a, b, c] = access(options);
    return StateValue(StateTuple{{a, b, c}});
  }
  StateValue operator()(Word& (*access)(OptimizerOptions&)) const {
    const Word& word = access(options);
    return word.has_value() ? StateValue(*word) : StateValue();
  }
  StateValue operator()(const Fixed& fixed) const { return fixed.value; }
  StateValue operator()(const Ignored& ignored) const { return ignored.value; }
};

}  // namespace

StateDict OptimizerKind::GetHyperparameters(OptimizerOptions& options) const {
  StateDict values;
  for (const Hyperparameter& parameter : hyperparameters) {
    values[parameter.key] = std::visit(Getter{options}, parameter.access);
  }
  return values;
}

void OptimizerKind::SetHyperparameters(
    const StateDict& values, OptimizerOptions& options,
    std::vector<std::string>& problems) const {
  for (const Hyperparameter& parameter : hyperparameters) {
    const StateValue* value = values.find(parameter.key);
    if (value == nullptr) continue;
    const std::string problem =
        std::visit(Setter{*value, options}, parameter.access);
    if (problem.empty()) continue;
    problems.push_back(absl::StrCat(parameter.key, " ", problem));
  }
}

}  // namespace fsdp
