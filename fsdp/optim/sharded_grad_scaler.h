// SPDX-License-Identifier: Apache-2.0
// ShardedGradScaler: torch.amp.GradScaler for sharded parameters. The rules are
// the same (scale the loss so that float16 gradients do not underflow, unscale,
// skip the step when one is not finite, adapt the scale), but the ranks agree
// on whether a gradient is not finite, or only some of them would step. For the
// thread that trains; unscale_ is collective over the group, and so is an
// iteration's first step without it.
//
//   scaler.scale(loss).backward();
//   scaler.unscale_(optimizer);               // optional, before clipping
//   clip_grad_norm_(model->parameters(), 1.0);
//   scaler.step(optimizer);
//   scaler.update();
#ifndef FSDP_OPTIM_SHARDED_GRAD_SCALER_H_
#define FSDP_OPTIM_SHARDED_GRAD_SCALER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"
#include "fsdp/mesh/process_group.h"
#include "torch/optim/optimizer.h"

namespace fsdp {

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;        // above 1
  double backoff_factor = 0.5;     // above 0, below 1
  int64_t growth_interval = 2000;  // steps in a row without skipping
  // false: the scaler does nothing.
  bool enabled = true;
};

// The state in a checkpoint, named as in PyTorch's state_dict.
struct GradScalerState {
  double scale;
  double growth_factor;
  double backoff_factor;
  int64_t growth_interval;
  int64_t growth_tracker;  // PyTorch's "_growth_tracker"
};

class ShardedGradScaler {
 public:
  // `group` holds every rank that has a parameter's part; default: all ranks.
  // Throws c10::ValueError for options out of range.
  explicit ShardedGradScaler(const GradScalerOptions& options = {},
                             ProcessGroup group = {});

  // The product with the scale, on the tensor's device; differentiable.
  at::Tensor scale(const at::Tensor& output);
  std::vector<at::Tensor> scale(const std::vector<at::Tensor>& outputs);

  // Divides the optimizer's gradients by the scale. Once per optimizer and
  // update. Throws c10::Error when called twice, after step, or before scale,
  // and c10::ValueError for float16 gradients, because their unscaled values
  // would underflow.
  void unscale_(torch::optim::Optimizer& optimizer);

  // Unscales, unless that was done, and steps unless a gradient on any rank is
  // infinite or NaN. Returns whether it stepped: to know that, the host waits
  // for the device, once. Throws c10::Error when called twice without update,
  // or when no parameter on any rank has a gradient.
  bool step(torch::optim::Optimizer& optimizer);

  // Adapts the scale to the results of the steps since the last update, or sets
  // it. Call it when an iteration ends.
  void update(std::optional<double> new_scale = {});

  // True when any of this optimizer's gradients, on any rank, was not finite.
  // False before unscale_. Waits for the device, except after step.
  bool found_inf(const torch::optim::Optimizer& optimizer) const;

  // 1 when disabled. Waits for the device.
  double get_scale() const;
  double get_growth_factor() const { return options_.growth_factor; }
  void set_growth_factor(double growth_factor);
  double get_backoff_factor() const { return options_.backoff_factor; }
  void set_backoff_factor(double backoff_factor);
  int64_t get_growth_interval() const { return options_.growth_interval; }
  void set_growth_interval(int64_t growth_interval);
  bool is_enabled() const { return options_.enabled; }

  // Absent when disabled. Waits for the device.
  std::optional<GradScalerState> state_dict() const;
  // Throws c10::ValueError for a state out of range; does nothing when
  // disabled.
  void load_state_dict(const GradScalerState& state);

 private:
  enum class Stage : uint8_t { kReady, kUnscaled, kStepped };
  // Since the last update.
  struct OptimizerState {
    Stage stage = Stage::kReady;
    // Over all ranks, float32, two numbers: above 0 if a gradient was not
    // finite, and if there was a gradient. Undefined before unscale_.
    at::Tensor found;
    // The first number, once step has read both.
    std::optional<bool> found_inf;
  };

  void CheckScaled(const char* call) const;
  // Returns OptimizerState::found.
  at::Tensor UnscaleGradients(torch::optim::Optimizer& optimizer) const;

  GradScalerOptions options_;
  ProcessGroup group_;  // null: the default group, when needed
  // On the first scaled output's device; undefined until then.
  at::Tensor scale_;           // float32, no dimensions
  at::Tensor growth_tracker_;  // int32, no dimensions
  int64_t init_growth_tracker_ = 0;
  std::map<const torch::optim::Optimizer*, OptimizerState> optimizers_;
};

}  // namespace fsdp

#endif  // FSDP_OPTIM_SHARDED_GRAD_SCALER_H_
