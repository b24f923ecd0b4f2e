// SPDX-License-Identifier: Apache-2.0
// Sharded: an activation in parts on the ranks of one mesh axis.
//
// [Note: sharded activations]
// A Sharded tensor reports the whole sizes and holds this rank's part, an
// ordinary tensor with an ordinary autograd graph. It has no storage. It
// carries the engine's lazy key, so every operator on it comes to the handler
// (handler.h) before autograd sees it, whole: `matmul`, not its pieces. The
// handler asks the operator's rule, which moves parts where it must (moves.h),
// runs the operator on them and wraps the result. Backward needs no rules:
// autograd recorded it on the parts, with the moves.
//
// Under two axes a part is itself Sharded: the outer one belongs to the axis
// with the smaller level, and its rule runs the operator on tensors that the
// other axis handles.
//
// A Sharded tensor with a part that requires grad has a grad_fn that throws:
// the graph is the part's, and a gradient that arrives at the Sharded itself
// would be lost. This happens when an autograd Function takes it as it is.
//
// For the thread that trains, and autograd's when it recomputes a forward.
#ifndef FSDP_PARALLEL_SPMD_SHARDED_H_
#define FSDP_PARALLEL_SPMD_SHARDED_H_

#include <optional>

#include "ATen/core/Tensor.h"
#include "c10/core/TensorImpl.h"
#include "fsdp/parallel/spmd/axis.h"
#include "fsdp/parallel/spmd/layout.h"
#include "fsdp/parallel/spmd/styled_param.h"
#include "torch/csrc/autograd/function.h"

namespace fsdp::spmd {

class Sharded final : public c10::TensorImpl {
 public:
  Sharded(at::Tensor part, Layout part_layout, AxisPtr part_axis,
          c10::IntArrayRef sizes);

  at::Tensor local;
  Layout layout;
  AxisPtr axis;
  // A view of this parameter's member.
  const StyledParam* param = nullptr;

  // The layout to which the next operator first moves the part, unless it adds
  // `pending_bias`.
  struct Pending {
    Layout to;
    const c10::TensorImpl* bias;
  };
  std::optional<Pending> pending;

  // The whole for a computation that differs between ranks (see Note: layouts),
  // kept so that three projections on one input move it once.
  at::Tensor varying;
  bool varying_has_graph = false;
  // The only grad_fn that this tensor itself may have.
  const torch::autograd::Node* guard = nullptr;

  // Replaces the part, after an in-place operator.
  void Assign(at::Tensor part, Layout part_layout);
  // Gives `self`, which is this, the grad_fn that throws, if the part requires
  // grad.
  static void Guard(const at::Tensor& self);

  void release_resources() override;
  const char* tensorimpl_type_name() const override;
};

// Null if `tensor` is an ordinary one.
Sharded* AsSharded(const at::Tensor& tensor);

// The activation with sizes `whole` and `part` as this rank's part. Under
// Layout::Same() an ordinary tensor: `part` itself.
at::Tensor Wrap(at::Tensor part, const Layout& layout, const AxisPtr& axis,
                c10::IntArrayRef whole);

// A parameter's member, or a view of it, as a Sharded on the parameter's axis,
// whatever the layout is. The part is an alias of the member, so that autograd
// saves that, and operators in backward do not count as uses of the member.
at::Tensor WrapParam(const at::Tensor& member, const StyledParam& param);

// A view of a parameter, with sizes `whole` on the parameter's axis and this
// rank's `part`.
at::Tensor WrapView(at::Tensor part, const StyledParam& param,
                    const Layout& layout, c10::IntArrayRef whole);

}  // namespace fsdp::spmd

#endif  // FSDP_PARALLEL_SPMD_SHARDED_H_
