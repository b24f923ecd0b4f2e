// SPDX-License-Identifier: Apache-2.0
// Finds the modules that a config names, by type, pattern or size.
//
// Tested by tests/fsdp/prepare/prepare_test.cc.
#include "fsdp/prepare/layers.h"

#include <re2/re2.h>

#include <algorithm>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "dcp/base/nearest_word.h"
#include "dcp/base/status.h"
#include "fsdp/checkpoint/state/torch_status.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/module/activation_checkpoint.h"
#include "fsdp/prepare/refusal.h"

namespace fsdp {
namespace {

using torch::nn::Module;
using Tensors = std::vector<at::Tensor>;
using Names = std::vector<std::string>;

bool IsOfType(const Module& module, const std::string& name) {
  const std::string full = type_name(module);
  return full == name || absl::EndsWith(full, absl::StrCat("::", name));
}

bool HasType(const Module& root, const std::string& name) {
  for (const auto& module : root.modules(/*include_self=*/false)) {
    if (IsOfType(*module, name)) return true;
  }
  return false;
}

// The model's own types, without namespaces: "BlockImpl", "AttentionImpl".
Names OwnTypes(const Module& root) {
  std::set<std::string> types;
  for (const auto& module : root.modules(/*include_self=*/false)) {
    if (is_container_without_forward(*module)) continue;
    const std::string full = type_name(*module);
    const size_t colons = full.rfind("::");
    types.insert(colons == std::string::npos ? full : full.substr(colons + 2));
  }
  return {types.begin(), types.end()};
}

// The type in this model that a config calls `name`: the one that the program
// gives, or the same name, which in C++ ends in Impl. Empty: none.
std::string FindTypeName(const Module& root, const std::string& name,
                         const PrepareOptions& options) {
  for (const auto& [theirs, ours] : options.type_names) {
    if (theirs == name && HasType(root, ours)) return ours;
  }
  for (const std::string& spelling : {name, absl::StrCat(name, "Impl")}) {
    if (HasType(root, spelling)) return spelling;
  }
  return "";
}

// Suggests the type that was probably meant, or lists a few.
std::string SuggestTypes(const Module& root, const std::string& name) {
  const Names types = OwnTypes(root);
  std::vector<absl::string_view> words(types.begin(), types.end());
  const absl::string_view nearest = dcp::NearestWord(name, words);
  if (!nearest.empty()) return absl::StrCat("did you mean ", nearest, "?");
  if (words.size() > 8) words.resize(8);
  return absl::StrCat("its types are ", absl::StrJoin(words, ", "),
                      "; PrepareOptions::type_names translates other names");
}

// The layer types: those that the config names, or the model's own; empty when
// neither names any.
absl::StatusOr<Names> LayerTypes(const Module& root,
                                 const ShardingConfig& config,
                                 const PrepareOptions& options) {
  Names types;
  const auto& setting = config.transformer_layer_cls_to_wrap;
  for (const std::string& name : *setting) {
    types.push_back(FindTypeName(root, name, options));
    if (!types.back().empty()) continue;
    return Refusal(setting, "transformer_layer_cls_to_wrap", "names ", name,
                   ", but no module of the ", type_name(root),
                   " has that type; ", SuggestTypes(root, name));
  }
  if (!types.empty()) return types;
  for (const std::string& name : options.layers) {
    types.push_back(FindTypeName(root, name, options));
    if (!types.back().empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "PrepareOptions::layers names ", name, ", but no module of the ",
        type_name(root), " has that type; ", SuggestTypes(root, name)));
  }
  return types;
}

// False for modules that no policy picks: the root, lists and dicts.
bool MayBeLayer(const Module& root, const Module& module) {
  return &module != &root && !is_container_without_forward(module);
}

}  // namespace

absl::StatusOr<Tensors> IgnoredParameters(const Module& module,
                                          const ShardingConfig& config) {
  const auto& setting = config.ignored_modules;
  if (setting->empty()) return Tensors();
  RE2::Options quiet;
  quiet.set_log_errors(false);
  const RE2 pattern(*setting, quiet);
  if (!pattern.ok()) {
    return Refusal(
        setting, "ignored_modules", "is '", *setting,
        "', which is not a regular expression of RE2: ", pattern.error());
  }
  Tensors ignored;
  bool matches = RE2::FullMatch("", pattern);
  if (matches) {
    return Refusal(
        setting, "ignored_modules", "is '", *setting,
        "', which matches the model itself; nothing would be left to shard");
  }
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    if (!RE2::FullMatch(item.key(), pattern)) continue;
    matches = true;
    for (const at::Tensor& parameter : item.value()->parameters()) {
      if (seen.insert(parameter.unsafeGetTensorImpl()).second) {
        ignored.push_back(parameter);
      }
    }
  }
  if (matches) return ignored;
  return Refusal(setting, "ignored_modules", "is '", *setting,
                 "', which does not match the name of any module; it must "
                 "match a name such as '",
                 module.named_modules("", false).is_empty()
                     ? ""
                     : module.named_modules("", false).front().key(),
                 "' whole");
}

absl::StatusOr<WrapPolicy> WrapPolicyFor(const Module& module,
                                         const ShardingConfig& config,
                                         const PrepareOptions& options,
                                         const Tensors& ignored_params) {
  WrapPolicy policy;
  switch (*config.auto_wrap_policy) {
    case AutoWrapPolicy::kNoWrap:
      policy = NoWrapPolicy();
      break;
    case AutoWrapPolicy::kDirectChildren:
      policy = DirectChildrenWrapPolicy();
      break;
    case AutoWrapPolicy::kSizeBasedWrap:
      if (*config.min_num_params <= 0) {
        return Refusal(config.min_num_params, "min_num_params", "is ",
                       *config.min_num_params, ", not positive");
      }
      policy = SizeBasedWrapPolicy{.min_num_params = *config.min_num_params};
      break;
    case AutoWrapPolicy::kTransformerBasedWrap: {
      DCP_ASSIGN_OR_RETURN(Names types, LayerTypes(module, config, options));
      if (types.empty()) {
        return Refusal(config.auto_wrap_policy, "auto_wrap_policy",
                       "wraps the layers of a transformer, but neither "
                       "transformer_layer_cls_to_wrap nor "
                       "PrepareOptions::layers says their type; ",
                       SuggestTypes(module, ""));
      }
      policy = ModuleWrapPolicy(std::move(types));
      break;
    }
  }
  const auto picks = CatchTorch(
      [&] { return modules_to_wrap(module, policy, ignored_params); });
  DCP_RETURN_IF_ERROR(picks.status());
  return policy;
}

absl::StatusOr<ModuleList> LayersToCheckpoint(Module& module,
                                              const ShardingConfig& config,
                                              const PrepareOptions& options,
                                              const WrapPolicy& policy,
                                              const Tensors& ignored_params) {
  const auto& setting = config.activation_checkpointing;
  constexpr absl::string_view kName = "activation_checkpointing";
  if (*setting <= 0) return ModuleList();
  DCP_ASSIGN_OR_RETURN(const Names types, LayerTypes(module, config, options));
  const WrapPolicy layers_of =
      types.empty() ? policy : WrapPolicy(ModuleWrapPolicy(types));
  const ModuleSet picks = layers_of(module, ignored_params);
  const auto switchable = checkpointable_modules(module);
  int64_t num_layers = 0;
  ModuleList chosen;
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    if (picks.count(item.value().get()) == 0) continue;
    if (!MayBeLayer(module, *item.value())) continue;
    // The n-th, the 2n-th and so on, as TorchTitan counts.
    if (++num_layers % *setting != 0) continue;
    if (switchable.count(item.value().get()) == 0 &&
        !options.checkpoint_layer) {
      return Refusal(setting, kName, "requires '", item.key(), "' (",
                     type_name(*item.value()),
                     ") to be computed again in backward, but its calls cannot "
                     "be intercepted: hold the layer as "
                     "fsdp::Checkpointed<...> or in a Sequential, or give "
                     "PrepareOptions::checkpoint_layer");
    }
    chosen.push_back(item.value());
  }
  if (num_layers > 0) return chosen;
  return Refusal(setting, kName, "is ", *setting, ", but nothing says which ",
                 "modules are layers; name them in ",
                 "transformer_layer_cls_to_wrap or PrepareOptions::layers");
}

void CheckpointLayers(Module& module, const ModuleList& layers,
                      const PrepareOptions& options) {
  if (layers.empty()) return;
  const auto switchable = checkpointable_modules(module);
  std::unordered_set<const Module*> switched;
  for (const auto& layer : layers) {
    if (switchable.count(layer.get()) != 0) {
      switched.insert(layer.get());
    } else {
      options.checkpoint_layer(*layer);
    }
  }
  if (switched.empty()) return;
  apply_activation_checkpointing(
      module, [&](const Module& below) { return switched.count(&below) != 0; });
}

absl::Status CheckParameters(const Module& module, const Tensors& ignored) {
  const auto is_ignored = [&ignored](const at::Tensor& parameter) {
    return std::any_of(
        ignored.begin(), ignored.end(),
        [&](const at::Tensor& other) { return other.is_same(parameter); });
  };
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& parameter = item.value();
    if (is_ignored(parameter)) continue;
    const absl::string_view wrong =
        parameter.dim() == 0 ? "has no dimension to shard"
        : !parameter.is_contiguous()
            ? "is not contiguous"
            : (!parameter.is_floating_point() && !parameter.is_complex()
                   ? "is not floating"
                   : "");
    if (wrong.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the parameter '", item.key(), "' ", wrong,
                     "; change it, or name its module in ignored_modules"));
  }
  return absl::OkStatus();
}

}  // namespace fsdp
