// SPDX-License-Identifier: Apache-2.0
// Splits activations into plain parts and wraps parts again.
// Tested by tests/fsdp/parallel/tensor/activation_test.cc.
#include "fsdp/engine/activation_form.h"

#include <atomic>
#include <cstddef>
#include <utility>

namespace fsdp {
namespace {

// Release and acquire: a thread that sees the splitter sees everything that was
// written before SetActivationSplitter.
std::atomic<ActivationSplitter> activation_splitter{nullptr};

// Replaces activations with their parts.
ActivationForms SplitAll(std::vector<at::Tensor>& activations) {
  ActivationForms forms;
  for (at::Tensor& activation : activations) {
    ActivationPart split = SplitActivation(activation);
    activation = std::move(split.part);
    forms.push_back(std::move(split.form));
  }
  return forms;
}

}  // namespace

void SetActivationSplitter(ActivationSplitter splitter) {
  activation_splitter.store(splitter, std::memory_order_release);
}

ActivationPart SplitActivation(const at::Tensor& activation) {
  const ActivationSplitter splitter =
      activation_splitter.load(std::memory_order_acquire);
  if (splitter == nullptr) return {activation, nullptr};
  return splitter(activation);
}

TensorsFn OnParts(TensorsFn fn, std::vector<at::Tensor>& activations,
                  const std::shared_ptr<ActivationForms>& outputs) {
  return [fn = std::move(fn), forms = SplitAll(activations),
          weak = std::weak_ptr(outputs)](const std::vector<at::Tensor>& parts) {
    std::vector<at::Tensor> inputs = parts;
    WrapParts(inputs, forms);
    std::vector<at::Tensor> results = fn(inputs);
    ActivationForms result_forms = SplitAll(results);
    if (const auto held = weak.lock()) *held = std::move(result_forms);
    return results;
  };
}

void WrapParts(std::vector<at::Tensor>& parts, const ActivationForms& forms) {
  for (size_t i = 0; i < parts.size(); ++i) {
    if (forms[i] != nullptr) parts[i] = forms[i]->WrapPart(parts[i]);
  }
}

}  // namespace fsdp
