// SPDX-License-Identifier: Apache-2.0
// Decides for each operator whether it means shards or parameters.
// Tested by tests/fsdp/reaching_parameters_test.cc.
#include "fsdp/engine/lazy/shard_use.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "c10/core/GradMode.h"
#include "fsdp/engine/fsdp_param.h"
#include "fsdp/engine/fsdp_param_group.h"
#include "fsdp/engine/lazy/operator_schema.h"
#include "fsdp/engine/lazy/write_watch.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/engine/managed_storage.h"
#include "fsdp/engine/step_scheduler.h"

namespace fsdp {
namespace {

using Names = std::unordered_set<std::string>;

// A shard, or a view of one, among the arguments.
struct ShardArgument {
  size_t argument;
  std::optional<size_t> element;  // in a list
  at::Tensor tensor;
  ShardStorage* storage;  // null once it was replaced (to(), load)
  bool is_written;

  FsdpParam* param() const { return FsdpParam::FindByShard(tensor); }
};

struct Arguments {
  std::vector<ShardArgument> shards;
  std::vector<at::Tensor> others;  // with dimensions
  bool has_parameter = false;

  void Add(const at::Tensor& tensor, size_t argument,
           std::optional<size_t> element, bool is_written) {
    if (!tensor.defined()) return;
    if (FindManagedStorage(tensor) != nullptr) {
      has_parameter = true;
      return;
    }
    if (HasLazyKey(tensor)) {
      ShardStorage* storage = FindShardStorage(tensor);
      if (storage != nullptr || FsdpParam::FindByShard(tensor) != nullptr) {
        shards.push_back({argument, element, tensor, storage, is_written});
        return;
      }
    }
    if (tensor.dim() > 0) others.push_back(tensor);
  }
};

Arguments CollectArguments(const c10::FunctionSchema& schema,
                           const torch::jit::Stack& stack, size_t begin) {
  Arguments found;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const bool is_written = WritesArgument(schema, i);
    const c10::IValue& value = stack[begin + i];
    if (value.isTensor()) {
      found.Add(value.toTensor(), i, std::nullopt, is_written);
    } else if (value.isTensorList()) {
      const std::vector<at::Tensor> list = value.toTensorVector();
      for (size_t j = 0; j < list.size(); ++j) {
        found.Add(list[j], i, j, is_written);
      }
    }
  }
  return found;
}

// torch::load replaces a shard with set_ if the file's tensor is on the shard's
// device, else with set_data, which calls this operator first.
bool ReplacesShard(const std::string& name) {
  return name == "aten::set_" ||
         name == "aten::_has_compatible_shallow_copy_type";
}

void NoteLoaded(const ShardArgument& shard, const at::Tensor& source,
                const std::string& schema_name) {
  FsdpParam* param = shard.param();
  if (param == nullptr || !source.defined()) return;
  if (HasLazyKey(source)) {
    // Another shard, or the result of Module::to: the next gather looks at it.
    param->group().scheduler().OnShardWritten(param->group());
    return;
  }
  const std::vector<int64_t> local = param->geometry().local_sizes();
  TORCH_CHECK(source.sizes() == local, "fsdp: the shard of '", param->name(),
              "' was to be replaced by a tensor of shape ", source.sizes(),
              ", but this rank's part has the shape ", c10::IntArrayRef(local),
              ". For a whole tensor, use the to_local() of "
              "fsdp::distribute_tensor; whole state dicts are loaded by "
              "fsdp::set_model_state_dict with full_state_dict");
  // On the same device, the program itself called set_data.
  if (schema_name == "aten::set_" || source.device() != shard.tensor.device()) {
    param->marks().loaded = true;
  }
}

bool IsElementwise(const std::string& name) {
  static const Names* names = [] {
    auto* all = new Names;
    for (const char* base :
         {"add",  "sub",     "rsub",    "mul",     "div",     "pow",
          "lerp", "addcmul", "addcdiv", "maximum", "minimum", "where",
          "eq",   "ne",      "lt",      "le",      "gt",      "ge",
          "copy", "dot",     "equal",   "isclose", "allclose"}) {
      all->insert(std::string("aten::") + base);
      all->insert(std::string("aten::") + base + "_");
    }
    return all;
  }();
  return names->count(name) != 0;
}

// Optimizers' operators on many shards at once, communication, and operators
// that need only sizes and types.
bool IsByShard(const std::string& name) {
  static const Names kQuestions = {"aten::_has_compatible_shallow_copy_type",
                                   "aten::is_same_size", "aten::is_set_to"};
  return kQuestions.count(name) != 0 ||
         absl::StartsWith(name, "aten::_foreach_") ||
         absl::StartsWith(name, "aten::_fused_") ||
         absl::StartsWith(name, "aten::_amp_") ||
         absl::StartsWith(name, "c10d::");
}

// Operators that copy a container's shard, view it or make another like it.
bool TakesShardAlone(const c10::FunctionSchema& schema) {
  static const Names kNames = {
      "aten::clone",     "aten::contiguous",   "aten::to",
      "aten::_to_copy",  "aten::equal",        "aten::isclose",
      "aten::allclose",  "aten::set_",         "aten::view",
      "aten::reshape",   "aten::flatten",      "aten::item",
      "aten::is_pinned", "aten::resolve_conj", "aten::resolve_neg"};
  const std::string& name = schema.name();
  return OnlyMakesView(schema) || kNames.count(name) != 0 ||
         absl::EndsWith(name, "_like") || absl::StartsWith(name, "aten::new_");
}

// Whether the shard holds only a part of the parameter.
bool IsPart(const ShardArgument& shard) {
  if (const FsdpParam* param = shard.param()) {
    return param->AsDTensor().shape() != shard.tensor.sizes().vec();
  }
  const FsdpParamGroup* group =
      shard.storage ? shard.storage->group() : nullptr;
  return group != nullptr && !group->params().empty() &&
         group->params().front()->geometry().world > 1;
}

std::string ParameterName(const ShardArgument& shard) {
  const FsdpParam* param = shard.param();
  return param == nullptr ? "a parameter"
                          : absl::StrCat("'", param->name(), "'");
}

void WarnAboutPart(const c10::FunctionSchema& schema,
                   const Arguments& arguments) {
  if (!arguments.others.empty() || TakesShardAlone(schema)) return;
  const ShardArgument& shard = arguments.shards.front();
  if (!IsPart(shard)) return;
  TORCH_WARN_ONCE(
      "fsdp: ", schema.name(), " computes only with this rank's part of ",
      ParameterName(shard),
      ", not with the whole parameter. On fsdp::parameters(module), "
      "full_tensor() returns the whole parameter, and norm() the whole norm. "
      "In a forward, put an fsdp::ForwardScope around it, or call the module "
      "through fsdp::forward. To use this rank's part, put an fsdp::ShardScope "
      "around it. Further operators of this kind are not reported");
}

// Refuses an optimizer that steps all parameters as one vector.
void CheckNotOneVector(const c10::FunctionSchema& schema,
                       const torch::jit::Stack& stack, size_t begin,
                       const ShardArgument& shard) {
  if (schema.name() != "aten::view_as" || shard.argument != 1) return;
  TORCH_CHECK(
      stack[begin].toTensor().numel() != shard.tensor.numel() || !IsPart(shard),
      "fsdp: ", shard.tensor.numel(), " elements of a tensor are viewed as ",
      "this rank's part of ", ParameterName(shard),
      ". Optimizers that step all parameters as one vector do so, such as "
      "torch::optim::LBFGS. Their dot products and step lengths would cover "
      "only this rank's parts. Use fsdp::LBFGS; to use this rank's part, put "
      "an fsdp::ShardScope around it");
}

bool IsInContainer(const ShardArgument& shard) {
  if (shard.storage != nullptr && !shard.storage->in_container()) return false;
  const FsdpParam* param = shard.param();
  return param != nullptr && param->in_container();
}

void CheckContainerAlone(const c10::FunctionSchema& schema,
                         const ShardArgument& shard) {
  TORCH_CHECK(
      TakesShardAlone(schema), "fsdp: ", schema.name(),
      " reads the parameter '", shard.param()->name(),
      "' through its container without recording gradients, so it is not known "
      "whether a forward or this rank's shard is meant. In a forward, put an "
      "fsdp::ForwardScope around it or call the module through fsdp::forward; "
      "for this rank's part, put an fsdp::ShardScope around it");
}

// Whether the operator means the parameters, not their shards.
bool MeansParameters(const c10::FunctionSchema& schema,
                     const Arguments& arguments) {
  if (ForwardScope::active()) return true;
  if (MovesShards(schema)) return false;
  if (!arguments.others.empty() || arguments.has_parameter) {
    const at::IntArrayRef sizes = arguments.shards.front().tensor.sizes();
    const bool alike = std::all_of(
        arguments.others.begin(), arguments.others.end(),
        [&](const at::Tensor& other) { return other.sizes() == sizes; });
    return arguments.has_parameter || !alike || !IsElementwise(schema.name());
  }
  for (const ShardArgument& shard : arguments.shards) {
    if (!IsInContainer(shard)) continue;
    if (c10::GradMode::is_enabled()) return true;
    CheckContainerAlone(schema, shard);
  }
  return false;
}

at::Tensor WholeParameter(const ShardArgument& shard,
                          const c10::FunctionSchema& schema) {
  const FsdpParam* param = shard.param();
  FsdpParamGroup* group = shard.storage ? shard.storage->group() : nullptr;
  TORCH_CHECK(
      param != nullptr, "fsdp: ", schema.name(),
      " takes a view of this rank's part of a parameter of '",
      group == nullptr ? "" : group->name(),
      "', from module->parameters(), together with tensors of other shapes, as "
      "a forward does. In a forward, read the layer's member, or put an "
      "fsdp::ForwardScope around it and around the view; for this rank's part, "
      "put an fsdp::ShardScope around it");
  return param->leaf();
}

void Substitute(const ShardArgument& shard, const c10::FunctionSchema& schema,
                torch::jit::Stack& stack, size_t begin) {
  c10::IValue& value = stack[begin + shard.argument];
  const at::Tensor parameter = WholeParameter(shard, schema);
  if (!shard.element.has_value()) {
    value = parameter;
    return;
  }
  c10::List<at::Tensor> list = value.toTensorList().copy();
  list.set(*shard.element, parameter);
  value = std::move(list);
}

}  // namespace

void NoteShardWrite(const at::Tensor& tensor) {
  WriteWatch::AwaitReaders(tensor);
  const ShardStorage* storage = FindShardStorage(tensor);
  FsdpParamGroup* group = storage == nullptr ? nullptr : storage->group();
  if (group == nullptr) {
    FsdpParam* param = FsdpParam::FindByShard(tensor);
    if (param == nullptr) return;
    group = &param->group();
  }
  group->scheduler().OnShardWritten(*group);
}

bool ResolveShards(const c10::FunctionSchema& schema, torch::jit::Stack& stack,
                   size_t begin) {
  const Arguments arguments = CollectArguments(schema, stack, begin);
  if (arguments.shards.empty()) return false;
  const std::string& name = schema.name();
  const bool replaces = ReplacesShard(name) && schema.arguments().size() > 1 &&
                        stack[begin + 1].isTensor();
  bool writes = false;
  for (const ShardArgument& shard : arguments.shards) {
    if (replaces && shard.argument == 0) {
      NoteLoaded(shard, stack[begin + 1].toTensor(), name);
    }
    if (!shard.is_written) continue;
    NoteShardWrite(shard.tensor);
    writes = true;
  }
  if (writes || ShardScope::active() || IsByShard(name)) return false;
  CheckNotOneVector(schema, stack, begin, arguments.shards.front());
  if (!MeansParameters(schema, arguments)) {
    WarnAboutPart(schema, arguments);
    return false;
  }
  for (const ShardArgument& shard : arguments.shards) {
    Substitute(shard, schema, stack, begin);
  }
  return true;
}

}  // namespace fsdp
