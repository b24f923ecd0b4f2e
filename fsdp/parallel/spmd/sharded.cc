// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/spmd/sharded.h"

#include <memory>
#include <string>
#include <utility>

#include "ATen/ops/alias.h"
#include "c10/core/GradMode.h"
#include "c10/core/impl/LocalDispatchKeySet.h"
#include "fsdp/engine/fsdp_param.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/engine/managed_storage.h"
#include "fsdp/parallel/spmd/bypass.h"
#include "torch/csrc/autograd/variable.h"

namespace fsdp::spmd {
namespace {

c10::DispatchKeySet KeysFor(const at::Tensor& part) {
  return (part.key_set() | c10::DispatchKeySet(kLazyKey))
      .remove(c10::DispatchKey::Python);
}

// A Sharded tensor's grad_fn: see Note: sharded activations.
struct Unreachable : torch::autograd::Node {
  torch::autograd::variable_list apply(
      torch::autograd::variable_list&& /*grads*/) override {
    TORCH_CHECK(
        false,
        "a gradient arrives at an activation that lies in parts on the ranks: "
        "an autograd Function took it as it is. Give the Function "
        "fsdp::to_local(x), or fsdp::full_tensor(x)");
  }
  std::string name() const override { return "Sharded"; }
};

}  // namespace

const StyledParam* FindStyledParam(const at::Tensor& tensor) {
  const ManagedStorage* storage = FindManagedStorage(tensor);
  if (storage == nullptr) return nullptr;
  const FsdpParam* param = storage->owner();
  if (param == nullptr || param->parallel() == nullptr ||
      !param->parallel()->has_rules || !tensor.is_same(param->leaf())) {
    return nullptr;
  }
  return static_cast<const StyledParam*>(param->parallel());
}

Sharded::Sharded(at::Tensor part, Layout part_layout, AxisPtr part_axis,
                 c10::IntArrayRef sizes)
    : c10::TensorImpl(KeysFor(part), part.dtype(), part.device()),
      local(std::move(part)),
      layout(part_layout),
      axis(std::move(part_axis)) {
  set_sizes_contiguous(sizes);
  set_storage_access_should_throw();
}

void Sharded::Assign(at::Tensor part, Layout part_layout) {
  local = std::move(part);
  layout = part_layout;
  pending.reset();
  varying = at::Tensor();
}

void Sharded::Guard(const at::Tensor& self) {
  auto* impl = static_cast<Sharded*>(self.unsafeGetTensorImpl());
  if (impl->guard != nullptr || !impl->local.requires_grad() ||
      !c10::GradMode::is_enabled()) {
    return;
  }
  auto node = std::shared_ptr<Unreachable>(new Unreachable(),
                                           torch::autograd::deleteNode);
  node->add_input_metadata(self);
  impl->guard = node.get();
  torch::autograd::impl::set_gradient_edge(
      self, torch::autograd::Edge(std::move(node), 0));
}

void Sharded::release_resources() {
  local = at::Tensor();
  varying = at::Tensor();
  c10::TensorImpl::release_resources();
}

const char* Sharded::tensorimpl_type_name() const { return "fsdp::Sharded"; }

Sharded* AsSharded(const at::Tensor& tensor) {
  if (!tensor.defined() || !HasLazyKey(tensor) || tensor.has_storage()) {
    return nullptr;
  }
  return dynamic_cast<Sharded*>(tensor.unsafeGetTensorImpl());
}

at::Tensor Wrap(at::Tensor part, const Layout& layout, const AxisPtr& axis,
                c10::IntArrayRef whole) {
  if (layout.is_same()) return part;
  at::Tensor wrapped =
      at::detail::make_tensor<Sharded>(std::move(part), layout, axis, whole);
  Sharded::Guard(wrapped);
  return wrapped;
}

at::Tensor WrapParam(const at::Tensor& member, const StyledParam& param) {
  at::Tensor part;
  {
    // The engine must see the alias; the handler must not.
    const BypassHandler bypass;
    part = at::alias(member);
  }
  return WrapView(std::move(part), param, param.layout, param.spec.shape);
}

at::Tensor WrapView(at::Tensor part, const StyledParam& param,
                    const Layout& layout, c10::IntArrayRef whole) {
  at::Tensor wrapped = at::detail::make_tensor<Sharded>(std::move(part), layout,
                                                        param.axis, whole);
  static_cast<Sharded*>(wrapped.unsafeGetTensorImpl())->param = &param;
  Sharded::Guard(wrapped);
  return wrapped;
}

}  // namespace fsdp::spmd
