// SPDX-License-Identifier: Apache-2.0
// Wrap policies: rules for which of a model's modules become groups, instead of
// a fully_shard call for each. The rules are those in
// torch/distributed/fsdp/wrap.py. For the thread that trains.
//
//   fsdp::auto_wrap(model, fsdp::ModuleWrapPolicy::of<BlockImpl>(), options);
//   fsdp::auto_wrap(model,
//                   fsdp::SizeBasedWrapPolicy{.min_num_params = 1 << 20});
#ifndef FSDP_MODULE_WRAP_H_
#define FSDP_MODULE_WRAP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/fully_shard.h"
#include "torch/nn/module.h"
#include "torch/nn/pimpl.h"

namespace fsdp {

using ModuleSet = std::unordered_set<const torch::nn::Module*>;

// Picks modules below `root`. auto_wrap skips picks that cannot be sharded on
// their own: the root, containers without forward, modules without parameters.
using WrapPolicy =
    std::function<ModuleSet(const torch::nn::Module& root,
                            const std::vector<at::Tensor>& ignored_params)>;

// Picks every module with one of the given types. With a model's layer types it
// is the transformer policy.
class ModuleWrapPolicy {
 public:
  // By class, including derived classes: ModuleWrapPolicy::of<BlockImpl>().
  template <typename... Impls>
  static ModuleWrapPolicy of() {
    ModuleWrapPolicy policy;
    policy.is_one_ = [](const torch::nn::Module& module) {
      return ((module.as<Impls>() != nullptr) || ...);
    };
    return policy;
  }
  // By name as from type_name, with or without namespaces: "BlockImpl",
  // "torch::nn::LinearImpl". Throws c10::ValueError, when it is applied, for a
  // name that no module below the root has.
  explicit ModuleWrapPolicy(std::vector<std::string> type_names)
      : type_names_(std::move(type_names)) {}

  ModuleSet operator()(const torch::nn::Module& root,
                       const std::vector<at::Tensor>& ignored_params) const;

 private:
  ModuleWrapPolicy() = default;

  std::function<bool(const torch::nn::Module&)> is_one_;
  std::vector<std::string> type_names_;
};

// Bottom-up: picks a module once it holds `min_num_params` elements that no
// pick inside it holds. Does not look into modules with fewer elements, or into
// attention, which reads its children's weights itself. Does not pick lists and
// dicts.
struct SizeBasedWrapPolicy {
  int64_t min_num_params = 100'000'000;

  ModuleSet operator()(const torch::nn::Module& root,
                       const std::vector<at::Tensor>& ignored_params) const;
};

// Picks every module that `accepts` accepts.
struct LambdaWrapPolicy {
  std::function<bool(const std::string& name, const torch::nn::Module& module)>
      accepts;

  ModuleSet operator()(const torch::nn::Module& root,
                       const std::vector<at::Tensor>& ignored_params) const;
};

struct AlwaysWrapPolicy {
  ModuleSet operator()(const torch::nn::Module& root,
                       const std::vector<at::Tensor>& ignored_params) const;
};

// Picks the root's children; for a list or dict among them, the children of
// that.
struct DirectChildrenWrapPolicy {
  ModuleSet operator()(const torch::nn::Module& root,
                       const std::vector<at::Tensor>& ignored_params) const;
};

// Picks nothing, so that the root is the only group.
struct NoWrapPolicy {
  ModuleSet operator()(const torch::nn::Module& root,
                       const std::vector<at::Tensor>& ignored_params) const;
};

// Picks all modules that any of `policies` picks.
struct OrWrapPolicy {
  std::vector<WrapPolicy> policies;

  ModuleSet operator()(const torch::nn::Module& root,
                       const std::vector<at::Tensor>& ignored_params) const;
};

// Returns a module's options, as a custom policy does in Python.
using OptionsFn = std::function<FullyShardOptions(
    const std::string& name, const torch::nn::Module& module)>;

// The names of the modules that auto_wrap would shard, in the same order: inner
// before outer, the root ("") last. Changes nothing.
//
// [Note: ties] If two picks, or a pick and the group around it, would each hold
// one tied parameter, one module is sharded instead of them: the innermost
// module with a forward that holds all of the parameter's places. A picked
// module that is itself registered in two places is one group and needs no
// special treatment.
std::vector<std::string> modules_to_wrap(
    const torch::nn::Module& module, const WrapPolicy& policy,
    const std::vector<at::Tensor>& ignored_params = {});

// Calls fully_shard on the policy's picks, then on `module`; returns the
// handles, the root's last. Modules that are sharded already are left as they
// are, with everything inside them. Throws as fully_shard does, and
// c10::ValueError when `module` itself is sharded already.
std::vector<FSDPModule> auto_wrap(
    const std::shared_ptr<torch::nn::Module>& module, const WrapPolicy& policy,
    const FullyShardOptions& options = {});
// `options_fn` must name the same ignored_params every time: the root's are
// used to choose.
std::vector<FSDPModule> auto_wrap(
    const std::shared_ptr<torch::nn::Module>& module, const WrapPolicy& policy,
    const OptionsFn& options_fn);

// auto_wrap with DirectChildrenWrapPolicy.
std::vector<FSDPModule> fully_shard_children(
    const std::shared_ptr<torch::nn::Module>& module,
    const FullyShardOptions& options = {});

template <typename Impl, typename Options = FullyShardOptions>
std::vector<FSDPModule> auto_wrap(const torch::nn::ModuleHolder<Impl>& module,
                                  const WrapPolicy& policy,
                                  const Options& options = {}) {
  return auto_wrap(std::static_pointer_cast<torch::nn::Module>(module.ptr()),
                   policy, options);
}
template <typename Impl>
std::vector<FSDPModule> fully_shard_children(
    const torch::nn::ModuleHolder<Impl>& module,
    const FullyShardOptions& options = {}) {
  return fully_shard_children(
      std::static_pointer_cast<torch::nn::Module>(module.ptr()), options);
}

}  // namespace fsdp

#endif  // FSDP_MODULE_WRAP_H_
