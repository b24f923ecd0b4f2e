// SPDX-License-Identifier: Apache-2.0
// Classifies operators by schema.
// Tested by tests/fsdp/reaching_parameters_test.cc.
#include "fsdp/engine/lazy/operator_schema.h"

#include <string>
#include <unordered_set>

#include "absl/strings/match.h"

namespace fsdp {

bool WritesArgument(const c10::FunctionSchema& schema, size_t i) {
  static const std::unordered_set<std::string> kOnlyRead = {
      "c10d::send", "c10d::barrier", "c10d::monitored_barrier_"};
  const c10::Argument& argument = schema.arguments()[i];
  if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) {
    return true;
  }
  // Neither batch norms nor collectives declare it.
  if (argument.name() == "running_mean" || argument.name() == "running_var") {
    return true;
  }
  return i == 0 && absl::StartsWith(schema.name(), "c10d::") &&
         kOnlyRead.count(schema.name()) == 0;
}

bool OnlyMakesView(const c10::FunctionSchema& schema) {
  static const std::unordered_set<std::string> kViews = {
      "aten::t",          "aten::transpose", "aten::permute",
      "aten::view",       "aten::expand",    "aten::slice",
      "aten::select",     "aten::squeeze",   "aten::unsqueeze",
      "aten::as_strided", "aten::detach",    "aten::alias",
      "aten::narrow",     "aten::unbind",    "aten::split",
      "aten::chunk",      "aten::diagonal",  "aten::view_as",
      "aten::expand_as",  "aten::numpy_T",   "aten::mT",
      "aten::movedim",    "aten::swapaxes",  "aten::split_with_sizes"};
  return kViews.count(schema.name()) != 0;
}

bool MovesShards(const c10::FunctionSchema& schema) {
  static const std::unordered_set<std::string> kNames = {"aten::to",
                                                         "aten::_to_copy"};
  return kNames.count(schema.name()) != 0;
}

}  // namespace fsdp
