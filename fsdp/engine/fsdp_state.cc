// SPDX-License-Identifier: Apache-2.0
// Keeps the tree of fully_shard calls.
// Tested by tests/fsdp/fully_shard_test.cc.
#include "fsdp/engine/fsdp_state.h"

#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace fsdp {
namespace {

// Maps modules to the calls that took them. A new module may get a destroyed
// module's address: the weak pointer tells them apart.
struct Registry {
  struct Entry {
    std::weak_ptr<torch::nn::Module> module;
    std::weak_ptr<FsdpState> state;
    // Set only for calls that took no parameters, which no shard keeps alive.
    std::shared_ptr<FsdpState> keep;
  };
  std::mutex mutex;
  std::unordered_map<const torch::nn::Module*, Entry> by_module;

  static Registry& Get() {
    static Registry* registry = new Registry;
    return *registry;
  }
};

}  // namespace

FsdpState::FsdpState(std::vector<std::weak_ptr<torch::nn::Module>> modules,
                     std::shared_ptr<CommContext> comm)
    : modules_(std::move(modules)), tree_(std::make_shared<SharedTree>()) {
  tree_->scheduler = std::make_shared<StepScheduler>(std::move(comm));
}

FsdpState::~FsdpState() {
  bool was_parent = false;
  for (FsdpState* other : tree_->states) {
    if (other->parent_ != this) continue;
    other->parent_ = parent_;
    was_parent = true;
  }
  Leave();
  if (was_parent) PlaceGroups();
}

// Removes this state from the tree.
void FsdpState::Leave() {
  std::vector<FsdpState*> rest;
  std::vector<FsdpParamGroup*> groups;
  for (FsdpState* other : tree_->states) {
    if (other == this) continue;
    rest.push_back(other);
    for (const auto& group : other->groups_) groups.push_back(group.get());
  }
  tree_->states = std::move(rest);
  tree_->scheduler->set_groups(std::move(groups));
}

std::shared_ptr<FsdpState> FsdpState::Find(const torch::nn::Module& module) {
  Registry& registry = Registry::Get();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  const auto found = registry.by_module.find(&module);
  if (found == registry.by_module.end()) return nullptr;
  if (found->second.module.expired()) return nullptr;
  return found->second.state.lock();
}

void FsdpState::Register() {
  Registry& registry = Registry::Get();
  std::vector<std::shared_ptr<FsdpState>> gone;  // destroyed without the lock
  const std::lock_guard<std::mutex> lock(registry.mutex);
  for (auto it = registry.by_module.begin(); it != registry.by_module.end();) {
    if (!it->second.module.expired()) {
      ++it;
      continue;
    }
    gone.push_back(std::move(it->second.keep));
    it = registry.by_module.erase(it);
  }
  for (const auto& module : modules_) {
    registry.by_module[module.lock().get()] = {
        .module = module,
        .state = weak_from_this(),
        .keep = groups_.empty() ? shared_from_this() : nullptr};
  }
}

void FsdpState::AdoptChildren() {
  std::vector<FsdpState*> below;
  std::unordered_set<const FsdpState*> seen{this};
  for (const auto& weak : modules_) {
    for (const auto& module : weak.lock()->modules()) {
      const std::shared_ptr<FsdpState> state = Find(*module);
      if (state && seen.insert(state.get()).second) {
        below.push_back(state.get());
      }
    }
  }
  std::vector<FsdpState*> states{this};
  for (FsdpState* state : below) {
    if (state->parent_ == nullptr) state->parent_ = this;
    states.push_back(state);
    if (state->tree_ == tree_) continue;
    for (const auto& group : state->groups_) {
      // The scheduler that the group leaves has counted the gather.
      group->DropGather();
      group->Reshard(/*after_forward=*/false);
    }
    state->Leave();
    state->tree_ = tree_;
  }
  std::vector<FsdpParamGroup*> groups;
  for (const FsdpState* state : states) {
    for (const auto& group : state->groups_) groups.push_back(group.get());
  }
  tree_->states = std::move(states);
  tree_->scheduler->set_groups(std::move(groups));
  NameGroups();
  PlaceGroups();
}

// Tells each group which groups are above it.
void FsdpState::PlaceGroups() {
  for (const FsdpState* state : tree_->states) {
    FsdpParamGroup::Place place{
        .is_root = state->is_root(), .above = {}, .together = {}};
    for (const FsdpState* above = state->parent_; above != nullptr;
         above = above->parent_) {
      for (const auto& group : above->groups_) {
        place.above.push_back(group.get());
      }
    }
    for (const auto& group : state->groups_) {
      place.together.push_back(group.get());
    }
    for (const auto& group : state->groups_) group->set_place(place);
  }
}

// Names the parameters and groups below this root.
void FsdpState::NameGroups() {
  std::unordered_map<const torch::nn::Module*, std::string> names;
  for (const auto& weak : modules_) {
    const auto named = weak.lock()->named_modules();
    for (const auto& item : named) {
      names.emplace(item.value().get(), item.key());
    }
  }
  for (FsdpState* state : tree_->states) {
    std::vector<std::string> own;
    for (const auto& weak : state->modules_) {
      const auto module = weak.lock();
      if (module) own.push_back(names[module.get()]);
    }
    state->name_ = absl::StrJoin(own, ", ");
    for (const auto& group : state->groups_) {
      group->set_name(state->name_);
      for (const auto& param : group->params()) {
        const FsdpParam::Slot& slot = param->slots().front();
        const std::string& module = names[slot.module];
        param->set_name(module.empty() ? slot.name
                                       : absl::StrCat(module, ".", slot.name));
      }
    }
  }
}

FsdpParamGroup* FsdpState::group() const {
  TORCH_CHECK(groups_.size() <= 1, "fsdp: '", name_, "' has ", groups_.size(),
              " groups of parameters, one for each mesh");
  return groups_.empty() ? nullptr : groups_.front().get();
}

bool FsdpState::IsAbove(const FsdpState& other) const {
  for (const FsdpState* state = other.parent_; state != nullptr;
       state = state->parent_) {
    if (state == this) return true;
  }
  return false;
}

std::vector<FsdpState*> FsdpState::Tree() {
  std::vector<FsdpState*> tree;
  for (FsdpState* state : tree_->states) {
    if (state == this || IsAbove(*state)) tree.push_back(state);
  }
  return tree;
}

}  // namespace fsdp
