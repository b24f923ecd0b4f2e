// SPDX-License-Identifier: Apache-2.0
// Moves inputs and results to the layouts in a parameter's style.
//
// Tested by tests/fsdp/parallel/tensor/styles_test.cc.
#include "fsdp/parallel/spmd/rules/styled.h"

#include <utility>

#include "fsdp/parallel/spmd/moves.h"

namespace fsdp::spmd {
namespace {

// The last plain part that still needs a bias.
struct LastLocal {
  using Weak =
      c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  std::optional<Weak> output;
  Layout layout;
  const c10::TensorImpl* bias = nullptr;
};
thread_local LastLocal last_local;

}  // namespace

void ApplyInputStyle(const OperatorStyle* style, Operand& input) {
  if (style == nullptr || !style->input.has_value() || !input.is_same() ||
      input.sharded() != nullptr || input.param() != nullptr) {
    return;
  }
  input.TakeAsPart(ToLayout(*style->input, input.ndim()));
}

at::Tensor ApplyOutputStyle(const Call& call, const OperatorStyle* style,
                            at::Tensor part, const Layout& layout,
                            const Sizes& whole, const c10::TensorImpl* bias) {
  Layout to = layout;
  if (style != nullptr && style->output.has_value()) {
    to = ToLayout(*style->output, static_cast<int64_t>(whole.size()));
  }
  if (style != nullptr && style->use_local_output) {
    at::Tensor moved = Move(part, layout, to, whole, call.axis());
    if (bias != nullptr) {
      last_local.output.emplace(moved.getIntrusivePtr());
      last_local.layout = to;
      last_local.bias = bias;
    }
    return moved;
  }
  if (bias != nullptr && to != layout) {
    at::Tensor wrapped = call.Wrapped(std::move(part), layout, whole);
    AsSharded(wrapped)->pending = {.to = to, .bias = bias};
    return wrapped;
  }
  return call.Wrapped(Move(part, layout, to, whole, call.axis()), to, whole);
}

std::optional<Layout> FindLocalOutput(const at::Tensor& output,
                                      const at::Tensor& bias) {
  if (!last_local.output.has_value() ||
      last_local.bias != bias.unsafeGetTensorImpl() ||
      last_local.output->lock().get() != output.unsafeGetTensorImpl()) {
    return std::nullopt;
  }
  last_local.output.reset();
  return last_local.layout;
}

}  // namespace fsdp::spmd
