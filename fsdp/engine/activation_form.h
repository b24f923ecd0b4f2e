// SPDX-License-Identifier: Apache-2.0
// ActivationForm: activations that are more than an ordinary tensor, because
// they lie in parts on the ranks (fsdp/parallel/spmd), and how they pass an
// autograd Function, which must take and return ordinary tensors: as their part
// of this rank, which is wrapped again on the other side. Any thread.
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
  // The activation of this form whose part is `part`.
  virtual at::Tensor Around(const at::Tensor& part) const = 0;
};

struct ActivationPart {
  at::Tensor part;
  std::shared_ptr<const ActivationForm> form;  // null for an ordinary tensor
};

using ActivationSplitter = ActivationPart (*)(const at::Tensor& activation);
// Has SplitActivation ask `splitter`; without one, every tensor is ordinary.
void SetActivationSplitter(ActivationSplitter splitter);
ActivationPart SplitActivation(const at::Tensor& activation);

// `fn`, a function of activations, as a function of the parts of `activations`,
// which are replaced by them. Its outputs are parts, too, and `outputs` gets
// their forms when it runs, as long as the caller holds it.
using TensorsFn =
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;
using ActivationForms = std::vector<std::shared_ptr<const ActivationForm>>;
TensorsFn OnParts(TensorsFn fn, std::vector<at::Tensor>& activations,
                  const std::shared_ptr<ActivationForms>& outputs);
// Wraps each of `parts` in its form.
void WrapParts(std::vector<at::Tensor>& parts, const ActivationForms& forms);

}  // namespace fsdp

#endif  // FSDP_ENGINE_ACTIVATION_FORM_H_
