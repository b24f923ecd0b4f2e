// SPDX-License-Identifier: Apache-2.0
// LibTorch asks the autograd engine for hooks when it saves a tensor. The
// default engine has none; the first ActivationOffload permanently replaces it
// with one that has them. Both run backward in the same way.
#include "fsdp/module/activation_offload.h"

#include <cstdint>
#include <memory>
#include <optional>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"
#include "fsdp/engine/managed_storage.h"
#include "fsdp/module/offload_stream.h"
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
    const bool is_managed = FindManagedStorage(tensor) != nullptr;
    if (is_managed || device_.is_cpu()) {
      // Without the graph, which owns this object.
      kept_ = tensor.tensor_data();
      version_ = tensor._version();
    } else if (pin_memory_ && tensor.layout() == at::kStrided) {
      parcel_.emplace(OffloadStream::ForDevice(device_), tensor);
    } else {
      kept_ = tensor.cpu();
    }
    if (!is_managed) *num_bytes_ += tensor.nbytes();
  }

  at::Tensor call_unpack_hook() override {
    if (parcel_.has_value()) return parcel_->Unpack();
    if (version_.has_value()) {
      CheckNotModified(kept_.sizes(), *version_, kept_._version());
    }
    return kept_.to(device_);
  }

 private:
  const bool pin_memory_;
  uint64_t* const num_bytes_;
  c10::Device device_ = c10::kCPU;
  std::optional<OffloadStream::Parcel> parcel_;
  at::Tensor kept_;                 // without a parcel
  std::optional<int64_t> version_;  // set if the tensor was not copied
};

}  // namespace

class OffloadingEngine final : public torch::autograd::Engine {
 public:
  static torch::autograd::Engine& Get() {
    // Never destroyed, because the engine's threads may outlive main.
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
