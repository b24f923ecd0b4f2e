// SPDX-License-Identifier: Apache-2.0

#include "fsdp/module/wrap.h"

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "c10/core/TensorImpl.h"
#include "c10/util/Exception.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/module/tied_parameters.h"
#include "torch/nn/modules/activation.h"

namespace fsdp {
namespace {

using torch::nn::Module;
using ModulePtr = std::shared_ptr<Module>;
using Tensors = std::vector<at::Tensor>;
using TensorSet = std::unordered_set<const c10::TensorImpl*>;

TensorSet Identities(const Tensors& tensors) {
  TensorSet identities;
  for (const at::Tensor& tensor : tensors) {
    identities.insert(tensor.unsafeGetTensorImpl());
  }
  return identities;
}

template <typename Accepts>
ModuleSet PickIf(const Module& root, const Accepts& accepts) {
  ModuleSet picks;
  for (const auto& item : root.named_modules("", /*include_self=*/false)) {
    if (accepts(item.key(), *item.value())) picks.insert(item.value().get());
  }
  return picks;
}

bool HasTypeName(const Module& module, const std::string& name) {
  const std::string full = type_name(module);
  return full == name || absl::EndsWith(full, absl::StrCat("::", name));
}

// ---- Size ------------------------------------------------------------------

class SizeBasedWalk {
 public:
  SizeBasedWalk(int64_t min_num_params, const Tensors& ignored)
      : min_num_params_(min_num_params), ignored_(Identities(ignored)) {}

  // Picks modules below `module`, and `module` itself unless it is the root.
  // Returns how many elements the picks have.
  int64_t Visit(const Module& module, bool is_root) {
    const int64_t all = Count(module);
    if (all < min_num_params_ ||
        module.as<torch::nn::MultiheadAttentionImpl>() != nullptr) {
      // Attention is a leaf: if it is too large, the module around it takes it.
      return 0;
    }
    int64_t taken = 0;
    std::unordered_set<const Module*> seen;
    for (const auto& child : ChildRegistry(module)) {
      if (!seen.insert(child.value().get()).second) continue;
      taken += Visit(*child.value(), /*is_root=*/false);
    }
    if (is_root || is_container_without_forward(module) ||
        all - taken < min_num_params_) {
      return taken;
    }
    picks_.insert(&module);
    return all;
  }
  ModuleSet Take() { return std::move(picks_); }

 private:
  int64_t Count(const Module& module) const {
    TensorSet seen = ignored_;
    int64_t count = 0;
    for (const at::Tensor& parameter : module.parameters()) {
      if (seen.insert(parameter.unsafeGetTensorImpl()).second) {
        count += parameter.numel();
      }
    }
    return count;
  }

  const int64_t min_num_params_;
  const TensorSet ignored_;
  ModuleSet picks_;
};

// ---- From picks to groups --------------------------------------------------

struct NamedModule {
  std::string path;
  ModulePtr module;
};

// The root ("") and everything below it, inner before outer, each module once.
void AppendPostOrder(const ModulePtr& module, const std::string& path,
                     std::unordered_set<const Module*>& seen,
                     std::vector<NamedModule>& modules) {
  if (!seen.insert(module.get()).second) return;
  for (const auto& child : ChildRegistry(*module)) {
    AppendPostOrder(
        child.value(),
        path.empty() ? child.key() : absl::StrCat(path, ".", child.key()), seen,
        modules);
  }
  modules.push_back({path, module});
}

class Selection {
 public:
  Selection(const Module& root, const WrapPolicy& policy,
            const Tensors& ignored)
      : root_(root), ignored_(Identities(ignored)) {
    TORCH_CHECK_VALUE(policy != nullptr, "auto_wrap: the policy is empty");
    paths_.emplace("", &root);
    for (const auto& item : root.named_modules("", /*include_self=*/false)) {
      paths_.emplace(item.key(), item.value().get());
    }
    picks_ = policy(root, ignored);
    std::erase_if(picks_, [this](const Module* m) { return !CanBeGroup(*m); });
    KeepTiesTogether();
  }

  bool contains(const Module& module) const {
    return picks_.count(&module) != 0;
  }

 private:
  bool CanBeGroup(const Module& module) const {
    if (&module == &root_ || is_container_without_forward(module)) return false;
    const Tensors parameters = module.parameters();
    return std::any_of(parameters.begin(), parameters.end(),
                       [this](const at::Tensor& p) {
                         return ignored_.count(p.unsafeGetTensorImpl()) == 0;
                       });
  }

  // See [Note: ties]. Every round removes picks and adds one further out, so
  // the loop ends.
  void KeepTiesTogether() {
    std::vector<std::vector<std::string>> ties = find_tied_parameters(root_);
    const auto parameters = root_.named_parameters();
    std::erase_if(ties, [&](const std::vector<std::string>& names) {
      return ignored_.count(parameters[names[0]].unsafeGetTensorImpl()) != 0;
    });
    for (bool changed = true; changed;) {
      changed = false;
      for (const std::vector<std::string>& names : ties) {
        if (IsTogether(names)) continue;
        changed = true;
        const std::string parent = lowest_common_parent(root_, names);
        for (const std::string& name : names) RemovePicks(name, parent);
        if (!parent.empty()) picks_.insert(paths_.at(parent));
      }
    }
  }

  static std::string Outer(const std::string& path) {
    const size_t dot = path.rfind('.');
    return dot == std::string::npos ? "" : path.substr(0, dot);
  }

  // The group that would hold the parameter.
  const Module* HoldingGroup(const std::string& name) const {
    for (std::string path = Outer(name); !path.empty(); path = Outer(path)) {
      const Module* module = paths_.at(path);
      if (picks_.count(module) != 0) return module;
    }
    return &root_;
  }

  bool IsTogether(const std::vector<std::string>& names) const {
    return std::all_of(names.begin(), names.end(), [&](const auto& name) {
      return HoldingGroup(name) == HoldingGroup(names.front());
    });
  }

  void RemovePicks(const std::string& name, const std::string& parent) {
    for (std::string path = Outer(name); path != parent; path = Outer(path)) {
      picks_.erase(paths_.at(path));
    }
  }

  const Module& root_;
  const TensorSet ignored_;
  std::unordered_map<std::string, const Module*> paths_;
  ModuleSet picks_;
};

// Modules that fully_shard took already, and everything inside them.
std::unordered_set<const Module*> ShardedAlready(const Module& root) {
  std::unordered_set<const Module*> sharded;
  for (const ModulePtr& module : root.modules(/*include_self=*/false)) {
    if (!find_fsdp_module(*module).has_value()) continue;
    for (const ModulePtr& inside : module->modules()) {
      sharded.insert(inside.get());
    }
  }
  return sharded;
}

}  // namespace

ModuleSet ModuleWrapPolicy::operator()(const Module& root,
                                       const Tensors& /*ignored*/) const {
  if (is_one_) {
    return PickIf(root, [this](const std::string& /*name*/, const Module& m) {
      return is_one_(m);
    });
  }
  ModuleSet picks;
  for (const std::string& type : type_names_) {
    ModuleSet of_type =
        PickIf(root, [&type](const std::string& /*name*/, const Module& m) {
          return HasTypeName(m, type);
        });
    TORCH_CHECK_VALUE(!of_type.empty() || HasTypeName(root, type),
                      "ModuleWrapPolicy: the ", type_name(root),
                      " holds no module of type '", type, "'");
    picks.merge(of_type);
  }
  return picks;
}

ModuleSet SizeBasedWrapPolicy::operator()(const Module& root,
                                          const Tensors& ignored_params) const {
  TORCH_CHECK_VALUE(min_num_params > 0,
                    "SizeBasedWrapPolicy: min_num_params is ", min_num_params,
                    ", but must be positive");
  SizeBasedWalk walk(min_num_params, ignored_params);
  walk.Visit(root, /*is_root=*/true);
  return walk.Take();
}

ModuleSet LambdaWrapPolicy::operator()(const Module& root,
                                       const Tensors& /*ignored*/) const {
  TORCH_CHECK_VALUE(accepts != nullptr, "LambdaWrapPolicy: accepts is empty");
  return PickIf(root, accepts);
}

ModuleSet AlwaysWrapPolicy::operator()(const Module& root,
                                       const Tensors& /*ignored*/) const {
  return PickIf(root, [](const std::string& /*name*/, const Module& /*m*/) {
    return true;
  });
}

ModuleSet DirectChildrenWrapPolicy::operator()(
    const Module& root, const Tensors& /*ignored*/) const {
  ModuleSet picks;
  std::vector<const Module*> open = {&root};
  while (!open.empty()) {
    const Module* holder = open.back();
    open.pop_back();
    for (const auto& child : ChildRegistry(*holder)) {
      if (is_container_without_forward(*child.value())) {
        open.push_back(child.value().get());
      } else {
        picks.insert(child.value().get());
      }
    }
  }
  return picks;
}

ModuleSet NoWrapPolicy::operator()(const Module& /*root*/,
                                   const Tensors& /*ignored*/) const {
  return {};
}

ModuleSet OrWrapPolicy::operator()(const Module& root,
                                   const Tensors& ignored_params) const {
  ModuleSet picks;
  for (const WrapPolicy& policy : policies) {
    picks.merge(policy(root, ignored_params));
  }
  return picks;
}

namespace {

std::vector<NamedModule> ModulesToWrap(const ModulePtr& module,
                                       const WrapPolicy& policy,
                                       const Tensors& ignored_params) {
  const Selection selection(*module, policy, ignored_params);
  std::unordered_set<const Module*> seen = ShardedAlready(*module);
  std::vector<NamedModule> modules;
  AppendPostOrder(module, "", seen, modules);
  std::erase_if(modules, [&](const NamedModule& named) {
    return named.module != module && !selection.contains(*named.module);
  });
  return modules;
}

}  // namespace

std::vector<std::string> modules_to_wrap(const Module& module,
                                         const WrapPolicy& policy,
                                         const Tensors& ignored_params) {
  // Does not own the module: the caller holds it, and nothing here keeps it.
  const ModulePtr alias(ModulePtr(), const_cast<Module*>(&module));
  std::vector<std::string> paths;
  for (NamedModule& named : ModulesToWrap(alias, policy, ignored_params)) {
    paths.push_back(std::move(named.path));
  }
  return paths;
}

std::vector<FSDPModule> auto_wrap(const ModulePtr& module,
                                  const WrapPolicy& policy,
                                  const OptionsFn& options_fn) {
  TORCH_CHECK_VALUE(module != nullptr, "auto_wrap: the module is null");
  TORCH_CHECK_VALUE(options_fn != nullptr, "auto_wrap: options_fn is empty");
  TORCH_CHECK_VALUE(
      !find_fsdp_module(*module).has_value(), "auto_wrap: the ",
      type_name(*module),
      " is sharded already; fully_shard can be applied to a module only once");
  const Tensors ignored = options_fn("", *module).ignored_params;
  std::vector<FSDPModule> handles;
  for (const NamedModule& named : ModulesToWrap(module, policy, ignored)) {
    handles.push_back(
        fully_shard(named.module, options_fn(named.path, *named.module)));
  }
  return handles;
}

std::vector<FSDPModule> auto_wrap(const ModulePtr& module,
                                  const WrapPolicy& policy,
                                  const FullyShardOptions& options) {
  return auto_wrap(
      module, policy,
      OptionsFn([&options](const std::string& /*name*/, const Module& /*m*/) {
        return options;
      }));
}

std::vector<FSDPModule> fully_shard_children(const ModulePtr& module,
                                             const FullyShardOptions& options) {
  return auto_wrap(module, DirectChildrenWrapPolicy(), options);
}

}  // namespace fsdp
