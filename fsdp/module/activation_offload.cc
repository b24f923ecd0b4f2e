// LibTorch asks its autograd engine for the hooks of a tensor that it saves.
// Its own engine has none; the first ActivationOffload permanently replaces it
// with one that has them. Both run backward in the same way.
#include "fsdp/module/activation_offload.h"

#include <cstdint>
#include <memory>
#include <optional>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty_strided.h"
#include "c10/core/Device.h"
#include "c10/util/Exception.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/engine/managed_storage.h"
#include "torch/csrc/autograd/engine.h"
#include "torch/csrc/autograd/graph_task.h"
#include "torch/csrc/autograd/saved_variable_hooks.h"

namespace fsdp {
namespace {

thread_local ActivationOffload* current = nullptr;

class OffloadedTensor final : public torch::autograd::SavedVariableHooks {
 public:
  // The constructor adds the packed bytes to `num_bytes`, which is not used
  // later.
  OffloadedTensor(bool pin_memory, uint64_t* num_bytes)
      : pin_memory_(pin_memory), num_bytes_(num_bytes) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    device_ = tensor.device();
    // A parameter is gathered into the same storage again.
    if (ManagedStorageOf(tensor) != nullptr || device_.is_cpu()) {
      kept_ = tensor;
      version_ = tensor._version();
    } else if (pin_memory_ && tensor.layout() == at::kStrided) {
      kept_ = at::empty_strided(
          tensor.sizes(), tensor.strides(),
          tensor.options().device(c10::kCPU).pinned_memory(true));
      kept_.copy_(tensor);
    } else {
      kept_ = tensor.cpu();
    }
    if (ManagedStorageOf(tensor) == nullptr) *num_bytes_ += tensor.nbytes();
  }

  at::Tensor call_unpack_hook() override {
    // LibTorch makes the same check for what it saves without hooks.
    TORCH_CHECK(!version_.has_value() || kept_._version() == *version_,
                "fsdp: a tensor of sizes ", kept_.sizes(),
                " that forward saved for backward was modified in place: it is "
                "at version ",
                kept_._version(), ", and was at version ", *version_);
    return kept_.to(device_, /*non_blocking=*/pin_memory_);
  }

 private:
  const bool pin_memory_;
  uint64_t* const num_bytes_;
  c10::Device device_ = c10::kCPU;
  at::Tensor kept_;
  std::optional<int64_t> version_;  // set if the tensor was not copied
};

}  // namespace

class OffloadingEngine final : public torch::autograd::Engine {
 public:
  static torch::autograd::Engine& Get() {
    // Never destroyed, because its threads may outlive main.
    static auto* engine = new OffloadingEngine;
    return *engine;
  }

  std::unique_ptr<torch::autograd::SavedVariableHooks>
  get_default_saved_variable_hooks() override {
    if (current == nullptr ||
        torch::autograd::get_current_graph_task_id() >= 0) {
      return nullptr;
    }
    return std::make_unique<OffloadedTensor>(current->pin_memory_,
                                             &current->num_saved_bytes_);
  }
};

ActivationOffload::ActivationOffload(bool pin_memory)
    : pin_memory_(pin_memory), outer_(current) {
  torch::autograd::set_default_engine_stub(&OffloadingEngine::Get);
  current = this;
}

ActivationOffload::~ActivationOffload() {
  ActivationOffload** link = &current;
  while (*link != this) link = &(*link)->outer_;
  *link = outer_;
}

}  // namespace fsdp
