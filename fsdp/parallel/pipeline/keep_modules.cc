// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/pipeline/keep_modules.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "c10/util/Exception.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/fully_shard.h"
#include "torch/nn/modules/container/moduledict.h"
#include "torch/nn/modules/container/modulelist.h"
#include "torch/nn/modules/container/sequential.h"

namespace fsdp {
namespace {

using torch::nn::Module;
using Modules = std::unordered_set<const Module*>;

// An entry in a module's registry.
struct Entry {
  Module* parent;
  std::string key;
  std::string name;  // below the model
  const std::shared_ptr<Module>* child;
};

std::string Join(const std::string& prefix, const std::string& key) {
  return prefix.empty() ? key : absl::StrCat(prefix, ".", key);
}

bool HoldsElements(const Module& module) {
  return module.as<torch::nn::ModuleListImpl>() != nullptr ||
         module.as<torch::nn::ModuleDictImpl>() != nullptr;
}

// Whether a container also keeps children in a list outside the registry.
bool HoldsChildrenTwice(const Module& module) {
  return HoldsElements(module) ||
         module.as<torch::nn::SequentialImpl>() != nullptr;
}

// Decides which entries of a model stay.
class Split {
 public:
  Split(Module& model, const std::vector<std::string>& names) : model_(model) {
    for (const std::string& name : names) {
      CheckExists(name);
      named_.insert(name);
      for (size_t dot = name.find('.'); dot != std::string::npos;
           dot = name.find('.', dot + 1)) {
        around_.insert(name.substr(0, dot));
      }
    }
    AddKept(model, "");
    CountOwners(model);
  }

  const std::vector<Entry>& removed() const { return removed_; }
  bool IsKept(const Module& module) const { return kept_.count(&module) != 0; }
  bool Contains(const Module& module) const {
    return &module == &model_ || owners_.count(&module) != 0;
  }
  // How many pointers to a module the registries and containers have.
  int64_t NumOwners(const Module& module) const { return owners_.at(&module); }

 private:
  void CheckExists(const std::string& name) const {
    Module* module = &model_;
    for (size_t begin = 0; begin <= name.size();) {
      const size_t end = std::min(name.find('.', begin), name.size());
      auto& children = ChildRegistry(*module);
      const auto* child = children.find(name.substr(begin, end - begin));
      TORCH_CHECK_VALUE(
          child != nullptr, "the model has no module '", name, "': ",
          begin == 0 ? std::string("it")
                     : absl::StrCat("'", name.substr(0, begin - 1), "'"),
          " has the children ", absl::StrJoin(children.keys(), ", "));
      module = child->get();
      begin = end + 1;
    }
  }

  void AddKept(Module& module, const std::string& prefix) {
    kept_.insert(&module);
    for (const auto& item : ChildRegistry(module)) {
      const std::string name = Join(prefix, item.key());
      Module& child = *item.value();
      if (named_.count(name) != 0) {
        for (const auto& below : child.modules()) kept_.insert(below.get());
      } else if (around_.count(name) != 0 || HoldsElements(child)) {
        AddKept(child, name);
      } else {
        removed_.push_back({&module, item.key(), name, &item.value()});
      }
    }
  }

  void CountOwners(const Module& module) {
    for (const auto& item : ChildRegistry(module)) {
      const Module& child = *item.value();
      const bool is_new = owners_.count(&child) == 0;
      owners_[&child] += HoldsChildrenTwice(module) ? 2 : 1;
      if (is_new) CountOwners(child);
    }
  }

  Module& model_;
  std::unordered_set<std::string> named_;
  std::unordered_set<std::string> around_;  // prefixes of `named_`
  std::vector<Entry> removed_;
  Modules kept_;
  std::unordered_map<const Module*, int64_t> owners_;
};

void CheckNotSharded(const Module& model) {
  bool is_sharded = false;
  for (const auto& module : model.modules()) {
    is_sharded |= find_fsdp_module(*module).has_value();
    for (const auto& item : ParameterRegistry(*module)) {
      is_sharded |= dtensor_of(item.value()).has_value();
    }
  }
  TORCH_CHECK_VALUE(
      !is_sharded,
      "keep_modules must come first, then parallelize_module, then "
      "fully_shard, but this model is sharded already");
}

void CheckMembers(const Split& split,
                  const std::vector<ModuleMember>& members) {
  std::unordered_map<const Module*, int64_t> listed;
  for (const ModuleMember& member : members) {
    const Module* module = member.module();
    if (module == nullptr) continue;
    TORCH_CHECK_VALUE(split.Contains(*module),
                      "keep_modules was given a member that holds a ",
                      type_name(*module), ", which is not in the model");
    ++listed[module];
  }
  for (const Entry& entry : split.removed()) {
    const std::shared_ptr<Module>& child = *entry.child;
    if (split.IsKept(*child)) continue;
    TORCH_CHECK_VALUE(
        child.use_count() == split.NumOwners(*child) + listed[child.get()],
        "keep_modules removes '", entry.name,
        "', but something else still holds it, most likely a member of the "
        "model's class: list a pointer to it, such as &model->",
        entry.key, ", so that it becomes empty and forward skips it");
  }
}

// A removed module must not share a tensor with a module that stays.
void CheckTies(Module& model, const Split& split) {
  std::unordered_map<const c10::TensorImpl*, std::string> kept;
  const auto for_each = [](const Module& module, const auto& visit) {
    for (const auto* tensors :
         {&ParameterRegistry(module), &BufferRegistry(module)}) {
      for (const auto& item : *tensors) {
        if (item.value().defined()) visit(item.key(), item.value());
      }
    }
  };
  for (const auto& item : model.named_modules("", /*include_self=*/true)) {
    if (!split.IsKept(*item.value())) continue;
    for_each(*item.value(), [&](const std::string& key, const at::Tensor& t) {
      kept.emplace(t.unsafeGetTensorImpl(), Join(item.key(), key));
    });
  }
  for (const Entry& entry : split.removed()) {
    const Module& child = **entry.child;
    for (const auto& item : child.named_modules(entry.name)) {
      if (split.IsKept(*item.value())) continue;
      for_each(*item.value(), [&](const std::string& key, const at::Tensor& t) {
        const auto tied = kept.find(t.unsafeGetTensorImpl());
        TORCH_CHECK_VALUE(
            tied == kept.end(), "'", tied->second, "' and '",
            Join(item.key(), key),
            "' are one tensor, of which two stages would each train a copy: "
            "keep both modules on one stage, or do not tie them");
      });
    }
  }
}

void Erase(const Entry& entry) {
  auto& children = ChildRegistry(*entry.parent);
  const auto erase_from = [&](auto& items) {
    TORCH_CHECK(items.size() == children.size(), "the container around '",
                entry.name, "' has ", items.size(), " elements but ",
                children.size(), " children");
    auto item = items.begin();
    for (const auto& child : children) {
      if (child.key() == entry.key) break;
      ++item;
    }
    items.erase(item);
  };
  if (auto* list = entry.parent->as<torch::nn::ModuleListImpl>()) {
    erase_from(SequentialItems(*list));
  } else if (auto* sequence = entry.parent->as<torch::nn::SequentialImpl>()) {
    erase_from(SequentialItems(*sequence));
  } else if (auto* dict = entry.parent->as<torch::nn::ModuleDictImpl>()) {
    dict->pop(entry.key);
  }
  children.erase(entry.key);
}

}  // namespace

void keep_modules(Module& model, const std::vector<std::string>& names,
                  const std::vector<ModuleMember>& members) {
  CheckNotSharded(model);
  const Split split(model, names);
  CheckMembers(split, members);
  CheckTies(model, split);
  for (const ModuleMember& member : members) {
    const Module* module = member.module();
    if (module != nullptr && !split.IsKept(*module)) member.reset();
  }
  for (const Entry& entry : split.removed()) Erase(entry);
}

}  // namespace fsdp
