// SPDX-License-Identifier: Apache-2.0
// ActivationForm: an activation that lies in parts on the ranks
// (fsdp/parallel/spmd) and so is more than an ordinary tensor. An autograd
// Function must take and return ordinary tensors; such an activation therefore
// passes it as this rank's part, which is wrapped again on the other side. Any
// thread.
#ifndef FSDP_ENGINE_ACTIVATION_FORM_H_
#define FSDP_ENGINE_ACTIVATION_FORM_H_

#include <functional>
#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"

namespace fsdp {

class ActivationForm {
 public:
  virtual ~ActivationForm() = default;
  // `part`, wrapped as an activation of this form.
  virtual at::Tensor WrapPart(const at::Tensor& part) const = 0;
};

struct ActivationPart {
  at::Tensor part;
  std::shared_ptr<const ActivationForm> form;  // null for an ordinary tensor
};

using ActivationSplitter = ActivationPart (*)(const at::Tensor& activation);
// Has SplitActivation ask `splitter`; without one, every tensor is ordinary.
void SetActivationSplitter(ActivationSplitter splitter);
ActivationPart SplitActivation(const at::Tensor& activation);

// Turns `fn`, a function on activations, into a function on their parts, and
// replaces `activations` with their parts. The new function returns parts, too;
// when it runs, it writes their forms to `outputs` if the caller still holds
// that.
using TensorsFn =
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;
using ActivationForms = std::vector<std::shared_ptr<const ActivationForm>>;
TensorsFn OnParts(TensorsFn fn, std::vector<at::Tensor>& activations,
                  const std::shared_ptr<ActivationForms>& outputs);
// Wraps each of `parts` in its form.
void WrapParts(std::vector<at::Tensor>& parts, const ActivationForms& forms);

}  // namespace fsdp

#endif  // FSDP_ENGINE_ACTIVATION_FORM_H_
