// SPDX-License-Identifier: Apache-2.0
// Sharded: an activation that lies in parts on the ranks of one mesh axis.
//
// [Note: sharded activations]
// A Sharded tensor reports the sizes of the whole and holds this rank's part,
// an ordinary tensor with an ordinary autograd graph. It has no storage. It
// carries the engine's lazy key, so every operator on it comes to the handler
// (handler.h) before autograd sees it, whole: `matmul`, not its pieces. The
// handler asks the rule of the operator, which moves parts where it must
// (moves.h), runs the operator on them and wraps the result. Backward needs no
// rules: it is what autograd recorded on the parts, plus the moves.
//
// Under two axes a part is itself Sharded: the outer one belongs to the axis
// with the smaller level, and its rule runs the operator on tensors that the
// other axis handles.
//
// A Sharded tensor whose part requires grad has a grad_fn that throws: its
// graph is that of its part, and a gradient that arrives at the Sharded itself
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

  // Where the next operator moves the part first, unless it is the addition of
  // `pending_bias`.
  struct Pending {
    Layout to;
    const c10::TensorImpl* bias;
  };
  std::optional<Pending> pending;

  // The whole for a computation that differs between ranks (see Note: layouts),
  // kept so that three projections of one input move it once.
  at::Tensor varying;
  bool varying_has_graph = false;
  // The only grad_fn that this tensor itself may have.
  const torch::autograd::Node* guard = nullptr;

  // Replaces the part, after an operator in place.
  void Assign(at::Tensor part, Layout part_layout);
  // Gives `self`, which is this, the grad_fn that throws, if the part requires
  // grad.
  static void Guard(const at::Tensor& self);

  void release_resources() override;
  const char* tensorimpl_type_name() const override;
};

// Null if `tensor` is an ordinary one.
Sharded* AsSharded(const at::Tensor& tensor);

// The activation of sizes `whole` of which `part` is this rank's part. An
// ordinary tensor under Layout::Same(): `part` itself.
at::Tensor Wrap(at::Tensor part, const Layout& layout, const AxisPtr& axis,
                c10::IntArrayRef whole);

// The member of a parameter, or a view of it, as a Sharded of its own axis,
// whatever its layout is. The part is an alias of the member, so that autograd
// saves that, and operators of backward are not taken for uses of the member.
at::Tensor WrapParam(const at::Tensor& member, const StyledParam& param);

// A view of a parameter, of sizes `whole` on the parameter's axis, whose `part`
// this rank has.
at::Tensor WrapView(at::Tensor part, const StyledParam& param,
                    const Layout& layout, c10::IntArrayRef whole);

}  // namespace fsdp::spmd

#endif  // FSDP_PARALLEL_SPMD_SHARDED_H_
