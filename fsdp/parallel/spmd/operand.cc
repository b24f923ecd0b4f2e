// SPDX-License-Identifier: Apache-2.0
// Reads an operator's tensor argument as a part and a layout.
//
// Tested by tests/fsdp/parallel/spmd/sharded_test.cc.
#include "fsdp/parallel/spmd/operand.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "c10/core/GradMode.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/mesh/collective_order.h"
#include "fsdp/parallel/spmd/moves.h"
#include "torch/csrc/autograd/function.h"
#include "torch/csrc/autograd/variable.h"

namespace fsdp::spmd {
namespace {

// The plain tensor that was last used as varying, and the move's node in the
// graph: when several projections share an input, backward has one all-reduce
// for it, not one each. Neither is kept alive.
struct LastVarying {
  using Weak =
      c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  std::optional<Weak> input;
  std::weak_ptr<torch::autograd::Node> node;
  const Axis* axis = nullptr;
};
thread_local LastVarying last_varying;

at::Tensor MovePlainToVarying(const at::Tensor& plain, const Sizes& sizes,
                              const AxisPtr& axis) {
  const bool records = plain.requires_grad() && c10::GradMode::is_enabled();
  if (!records) return plain;
  if (HasLazyKey(plain)) {
    return MoveToVarying(plain, Layout::Same(), sizes, axis);
  }
  if (last_varying.axis == axis.get() && last_varying.input.has_value() &&
      last_varying.input->lock().get() == plain.unsafeGetTensorImpl()) {
    auto node = last_varying.node.lock();
    // Not if the tensor was written into since then.
    if (node != nullptr &&
        node->next_edge(0) == torch::autograd::impl::gradient_edge(plain)) {
      at::Tensor again = plain.detach();
      torch::autograd::impl::set_gradient_edge(again, {std::move(node), 0});
      return again;
    }
  }
  at::Tensor varying = MoveToVarying(plain, Layout::Same(), sizes, axis);
  last_varying.input.emplace(plain.getIntrusivePtr());
  last_varying.node = varying.grad_fn();
  last_varying.axis = axis.get();
  return varying;
}

// In debug mode, checks a tensor that should be equal on all ranks of the axis:
// compares a digest of the bytes with the other ranks'.
void CheckEqualOnRanks(const at::Tensor& plain, const Axis& axis) {
  if (!debug_mode() || HasLazyKey(plain)) return;
  const c10::NoGradGuard no_grad;
  const at::Tensor bytes = plain.detach().to(at::kCPU).contiguous();
  const std::string copy(static_cast<const char*>(bytes.const_data_ptr()),
                         bytes.nbytes());
  CheckInStep(
      axis.group, plain.device().type(),
      absl::StrCat("use of a plain tensor of sizes [",
                   absl::StrJoin(plain.sizes(), ", "),
                   "], which must be equal on these ranks, with contents ",
                   absl::Hex(std::hash<std::string>()(copy))),
      "an operator with activations that lie in parts");
}

}  // namespace

void Settle(Sharded& sharded) {
  if (!sharded.pending.has_value()) return;
  const Layout to = sharded.pending->to;
  sharded.pending.reset();
  sharded.Assign(Move(sharded.local, sharded.layout, to, sharded.sizes().vec(),
                      sharded.axis),
                 to);
}

Operand::Operand(const at::Tensor& tensor, const AxisPtr& axis) : axis_(axis) {
  if (!tensor.defined()) return;
  part_ = tensor;
  if (!HasLazyKey(tensor)) {
    sizes_ = tensor.sizes().vec();
    return;
  }
  if (const StyledParam* param = FindStyledParam(tensor)) {
    part_ = WrapParam(tensor, *param);
  }
  Sharded* sharded = AsSharded(part_);
  sizes_ = part_.sizes().vec();
  if (sharded == nullptr) return;
  const auto grad_fn = part_.grad_fn();
  TORCH_CHECK(grad_fn.get() == sharded->guard, "an autograd Function (",
              grad_fn ? grad_fn->name() : "",
              ") returned an activation that lies in parts on the ranks, and "
              "its gradient would be lost. Have the Function take and return "
              "fsdp::to_local(x), and wrap its result by fsdp::from_local");
  if (sharded->axis != axis) return;  // a matter of an inner axis
  Settle(*sharded);
  param_ = sharded->param;
  layout_ = sharded->layout;
  // The Sharded of a parameter was made a moment ago and has no identity.
  if (part_.is_same(tensor)) sharded_ = sharded;
  part_ = sharded->local;
}

at::Tensor Operand::To(const Layout& to) const {
  if (!defined()) return part_;
  if (is_same() && !to.is_same()) CheckEqualOnRanks(part_, *axis_);
  at::Tensor part = Move(part_, layout_, to, sizes_, axis_);
  const bool adds_up = param_ != nullptr && param_->gradient_group != nullptr;
  return to.is_same() && adds_up ? ShareGradient(part, axis_) : part;
}

at::Tensor Operand::Varying() const {
  if (!defined()) return part_;
  const bool adds_up = param_ != nullptr && param_->gradient_group != nullptr;
  if (is_same() && adds_up) return part_;
  if (is_same()) CheckEqualOnRanks(part_, *axis_);
  if (sharded_ == nullptr) {
    return is_same() ? MovePlainToVarying(part_, sizes_, axis_)
                     : MoveToVarying(part_, layout_, sizes_, axis_);
  }
  const bool graph = c10::GradMode::is_enabled();
  if (!sharded_->varying.defined() || sharded_->varying_has_graph != graph) {
    sharded_->varying = MoveToVarying(part_, layout_, sizes_, axis_);
    sharded_->varying_has_graph = graph;
  }
  return sharded_->varying;
}

void Operand::TakeAsPart(const Layout& layout) {
  layout_ = layout;
  if (layout.is_shard()) {
    sizes_[static_cast<size_t>(layout.dim)] *= axis_->size;
  }
}

}  // namespace fsdp::spmd
