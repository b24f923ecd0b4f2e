// SPDX-License-Identifier: Apache-2.0
// Operand: one tensor argument to an operator, as the rules see it: this rank's
// part and the part's layout on the call's axis. For the thread that trains,
// and autograd's when it recomputes a forward.
#ifndef FSDP_PARALLEL_SPMD_OPERAND_H_
#define FSDP_PARALLEL_SPMD_OPERAND_H_

#include <cstddef>
#include <cstdint>

#include "ATen/core/Tensor.h"
#include "fsdp/parallel/spmd/axis.h"
#include "fsdp/parallel/spmd/layout.h"
#include "fsdp/parallel/spmd/sharded.h"
#include "fsdp/parallel/spmd/styled_param.h"

namespace fsdp::spmd {

class Operand {
 public:
  // An argument that is absent.
  Operand() = default;
  // `tensor` on `axis`: a Sharded or a styled parameter on that axis, or
  // anything else, which is the same on every rank. Carries out a Sharded's
  // pending move. Throws c10::Error for a Sharded that an autograd Function
  // returned.
  Operand(const at::Tensor& tensor, const AxisPtr& axis);

  bool defined() const { return part_.defined(); }
  // The whole tensor's sizes.
  const Sizes& sizes() const { return sizes_; }
  int64_t size(int64_t dim) const {
    return sizes_[static_cast<size_t>(NonNegative(dim, ndim()))];
  }
  int64_t ndim() const { return static_cast<int64_t>(sizes_.size()); }
  const Layout& layout() const { return layout_; }
  bool is_same() const { return layout_.is_same(); }
  bool is_shard() const { return layout_.is_shard(); }
  bool is_shard(int64_t dim) const { return layout_.is_shard(dim); }
  bool is_partial() const { return layout_.is_partial(); }
  // Null unless the argument is an activation in parts.
  Sharded* sharded() const { return sharded_; }
  // Null unless it is a styled parameter or a view of one.
  const StyledParam* param() const { return param_; }

  // The part under the layout that it has.
  const at::Tensor& part() const { return part_; }
  // The part under `to`; undefined if the operand is absent. `to` also decides
  // whether every rank must use the result in the same way: for a whole (same)
  // it must.
  at::Tensor To(const Layout& to) const;
  // The whole, for a computation that differs between ranks.
  at::Tensor Varying() const;
  // Treats the argument as this rank's part of an activation with `layout`.
  void TakeAsPart(const Layout& layout);

 private:
  at::Tensor part_;
  Layout layout_;
  Sizes sizes_;
  Sharded* sharded_ = nullptr;
  const StyledParam* param_ = nullptr;
  AxisPtr axis_;
};

// Carries out the pending move of `sharded`.
void Settle(Sharded& sharded);

}  // namespace fsdp::spmd

#endif  // FSDP_PARALLEL_SPMD_OPERAND_H_
