// SPDX-License-Identifier: Apache-2.0
// Gathers, casts and frees at the call boundary of one module.
// Tested by tests/fsdp/mixed_precision_dtypes_test.cc.
#include "fsdp/forward.h"

#include "fsdp/engine/fsdp_state.h"

namespace fsdp {

ForwardBoundary::ForwardBoundary(const torch::nn::Module& module)
    : state_(FsdpState::Find(module)), hooks_(FindBoundaryHooks(module)) {
  if (!state_) return;
  for (const auto& group : state_->groups()) {
    group->set_seen_at_boundary();
    state_->scheduler().OnGroupUse(*group, UsePhase::Now(),
                                   {.op = "forward", .may_start = true});
  }
}

void ForwardBoundary::Prepare(at::Tensor& input) {
  const size_t index = num_inputs_++;
  if (hooks_ && hooks_->input && input.defined()) {
    input = hooks_->input(index, input);
  }
  if (!state_ || state_->groups().empty() || !input.defined()) return;
  const GroupConfig& config = state_->groups().front()->config();
  if (!config.device.is_cpu() && input.device() != config.device) {
    input = input.to(config.device);
  }
  const MixedPrecisionPolicy& policy = config.mp_policy;
  if (policy.param_dtype.has_value() && policy.cast_forward_inputs &&
      input.is_floating_point()) {
    input = input.to(*policy.param_dtype);
  }
}

void ForwardBoundary::Finish() {
  if (!state_) return;
  for (const auto& group : state_->groups()) {
    state_->scheduler().AfterForward(*group);
  }
}

void ForwardBoundary::Return(at::Tensor& output) {
  const size_t index = num_outputs_++;
  if (hooks_ && hooks_->output && output.defined()) {
    output = hooks_->output(index, output);
  }
  if (!state_ || state_->groups().empty() || !output.defined()) return;
  const auto dtype = state_->groups().front()->config().mp_policy.output_dtype;
  if (dtype.has_value() && output.is_floating_point()) {
    output = output.to(*dtype);
  }
}

}  // namespace fsdp
