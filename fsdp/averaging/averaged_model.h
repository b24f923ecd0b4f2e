// SPDX-License-Identifier: Apache-2.0
// AveragedModel: the average of a model's weights in training, with the names
// and formulas in torch.optim.swa_utils. Each rank averages the
// shards that it has: nothing is gathered, and no call here communicates. To
// compute with the averages, put them in place by an AveragesScope
// (averages_scope.h).
//
// It is a Stateful, so that a checkpoint holds it as a second model, which
// loads on any number of ranks:
//
//   auto average = std::make_shared<fsdp::optim::AveragedModel>(
//       *model, fsdp::optim::AveragedModelOptions{
//                   .avg_fn = fsdp::optim::get_ema_avg_fn(0.999)});
//   ...
//   optimizer.step();
//   average->update_parameters(*model);
//   fsdp::StateDict state = {{"app", app}, {"ema", average}};
//
// The entries are those of Python's: "ema.n_averaged", an int64, and
// "ema.module.<name>" for each parameter and buffer. For the thread that
// trains, between steps; every rank makes the same calls.
#ifndef FSDP_AVERAGING_AVERAGED_MODEL_H_
#define FSDP_AVERAGING_AVERAGED_MODEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "fsdp/averaging/averaging_steps.h"
#include "fsdp/averaging/avg_fn.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "fsdp/mesh/dtensor_spec.h"
#include "torch/nn/module.h"

namespace fsdp::optim {

struct AveragedModelOptions {
  // Where the averages are: at::kCPU keeps them out of a GPU's memory. Unset:
  // where the model's tensors are.
  std::optional<c10::Device> device = std::nullopt;
  // Unset: get_swa_avg_fn(), the mean with equal weights.
  AvgFn avg_fn = nullptr;
  // Buffers are averaged too. false: they are the model's at the last update.
  bool use_buffers = false;
  // For update_after_step; update_parameters does not look at them.
  AveragingSteps steps = {};
};

class AveragedModel final : public Stateful {
 public:
  // Copies this rank's part of every tensor in `model`, after fully_shard. A
  // tied tensor is averaged once. Throws c10::ValueError for a model on the
  // meta device, or `steps` that contain none.
  explicit AveragedModel(const torch::nn::Module& model,
                         const AveragedModelOptions& options = {});

  // Adds the model's weights. The first call copies them. Before anything
  // changes, throws c10::ValueError, which names a tensor, for a model with
  // other names, shapes or shards, and c10::Error within an AveragesScope.
  void update_parameters(const torch::nn::Module& model);
  // The same if `step`, which counts from 1, is one of options.steps; returns
  // whether it was.
  bool update_after_step(const torch::nn::Module& model, int64_t step);

  // How many models the averages have taken.
  int64_t n_averaged() const;
  // The memory of the averages on this rank.
  uint64_t num_bytes() const;

  // Aliases the averages; those of sharded tensors are DTensors. Both return
  // FailedPrecondition within an AveragesScope.
  absl::StatusOr<StateDict> state_dict() override;
  // Copies into the averages, with a cast; whole tensors are cut. Before
  // anything changes, all mismatches of names, shapes and placements are
  // listed: NotFound for names that are missing, else InvalidArgument.
  absl::Status load_state_dict(const StateDict& state) override;

 private:
  friend class AveragesScope;

  struct Average {
    std::string name;
    at::Tensor tensor;                // this rank's part
    std::optional<DTensorSpec> spec;  // of the whole, if it is sharded
    bool is_parameter;
    bool is_first;  // among the names for one tensor
  };

  // The model's tensors in the order of averages_; throws for another model.
  std::vector<at::Tensor> MatchingTensors(const torch::nn::Module& model) const;
  absl::Status CheckNotSwapped() const;

  const AveragedModelOptions options_;
  std::vector<Average> averages_;  // in the order of ListEntries
  at::Tensor n_averaged_;          // int64 without dimensions, on the CPU
  bool is_swapped_ = false;        // the averages have the model's own weights
};

}  // namespace fsdp::optim

#endif  // FSDP_AVERAGING_AVERAGED_MODEL_H_
