// SPDX-License-Identifier: Apache-2.0
// Call and Rule: one operator call on an axis, and how a family of operators
// computes with parts. For the thread that trains, and autograd's when it
// recomputes a forward.
#ifndef FSDP_PARALLEL_SPMD_CALL_H_
#define FSDP_PARALLEL_SPMD_CALL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/core/ivalue.h"
#include "c10/util/ArrayRef.h"
#include "fsdp/parallel/spmd/axis.h"
#include "fsdp/parallel/spmd/layout.h"
#include "fsdp/parallel/spmd/operand.h"

namespace fsdp::spmd {

using Values = std::vector<c10::IValue>;

class Call {
 public:
  // `args` are on the dispatcher's stack, which outlives the call.
  Call(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args,
       const AxisPtr& axis)
      : op_(op), args_(args), axis_(axis) {}

  // "aten::add_", without the overload's name.
  const std::string& name() const { return op_.schema().name(); }
  const std::string& overload() const { return op_.schema().overload_name(); }
  const c10::FunctionSchema& schema() const { return op_.schema(); }
  const AxisPtr& axis() const { return axis_; }
  int64_t ranks() const { return axis_->size; }

  size_t num_args() const { return args_.size(); }
  const c10::IValue& arg(size_t i) const { return args_[i]; }
  Values args() const { return args_.vec(); }
  // The place of the argument with this name; nullopt if there is none.
  std::optional<size_t> argument_index(const char* name) const;
  // The same call with other arguments, which outlive it.
  Call WithArgs(c10::ArrayRef<c10::IValue> args) const {
    return {op_, args, axis_};
  }
  // Whether argument `i` is a tensor that is defined.
  bool has_tensor(size_t i) const {
    return i < args_.size() && args_[i].isTensor() &&
           args_[i].toTensor().defined();
  }
  // Absent unless argument `i` is a tensor.
  Operand operand(size_t i) const {
    return has_tensor(i) ? Operand(args_[i].toTensor(), axis_) : Operand();
  }
  // The operands in a list of tensors.
  std::vector<Operand> operands(size_t i) const;
  bool writes(size_t i) const {
    const c10::AliasInfo* alias = op_.schema().arguments()[i].alias_info();
    return alias != nullptr && alias->isWrite();
  }

  // Runs the operator with these arguments.
  Values Run(Values args) const {
    op_.callBoxed(&args);
    return args;
  }
  // The same, and the first result is this rank's part of an activation with
  // sizes `whole`.
  Values Run(Values args, const Layout& layout, c10::IntArrayRef whole) const {
    Values results = Run(std::move(args));
    results[0] = Wrap(results[0].toTensor(), layout, axis_, whole);
    return results;
  }
  at::Tensor Wrapped(at::Tensor part, const Layout& layout,
                     c10::IntArrayRef whole) const {
    return Wrap(std::move(part), layout, axis_, whole);
  }
  // The same, where the whole has the part's sizes, except for `length` along
  // the dimension that is cut.
  at::Tensor Wrapped(at::Tensor part, const Layout& layout,
                     int64_t length) const;
  // Runs the operator as PyTorch composes it from others, which follow their
  // own rules; nullopt for one that is not composed.
  std::optional<Values> RunComposed() const;

 private:
  const c10::OperatorHandle& op_;
  c10::ArrayRef<c10::IValue> args_;
  const AxisPtr& axis_;
};

// Returns the results, or nullopt if the family cannot work on these parts: the
// handler then gathers the arguments. A rule that returns nullopt has made no
// collective.
using Rule = std::optional<Values> (*)(Call& call);

// The rule for an operator ("aten::add_"); null without one.
Rule LookUpRule(const std::string& name);

}  // namespace fsdp::spmd

#endif  // FSDP_PARALLEL_SPMD_CALL_H_
