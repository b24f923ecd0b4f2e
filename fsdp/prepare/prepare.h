// SPDX-License-Identifier: Apache-2.0
// prepare: makes a model ready for a training loop, as a TrainConfig says, in
// one call and in the required order: tensor and expert parallelism, activation
// checkpointing, fully_shard, weights, optimizer, learning rate, checkpoints.
// For the thread that trains; collective: every rank calls it with the same
// config.
//
//   DCP_ASSIGN_OR_RETURN(const fsdp::TrainConfig config,
//                        fsdp::load_config("accelerate.yaml"));
//   MyModel model;
//   torch::optim::AdamW optimizer(model->parameters(), 3e-4);
//   DCP_ASSIGN_OR_RETURN(fsdp::Prepared training,
//                        fsdp::prepare(model, config,
//                                      {.layers = {"BlockImpl"},
//                                       .optimizer = &optimizer}));
//   ...
//   optimizer.step();
//   if (training.learning_rate != nullptr) training.learning_rate->step();
#ifndef FSDP_PREPARE_PREPARE_H_
#define FSDP_PREPARE_PREPARE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "config/model/train_config.h"
#include "dcp/tensor/dtype.h"
#include "fsdp/checkpoint/checkpoint_manager.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/parallel_dims.h"
#include "fsdp/module/activation_offload.h"
#include "fsdp/parallel/context/context_parallel.h"
#include "fsdp/prepare/learning_rate.h"
#include "fsdp/prepare/prepare_options.h"
#include "torch/nn/module.h"
#include "torch/nn/pimpl.h"

namespace fsdp {

struct Prepared {
  // The mesh over which fully_shard cuts parameters: PrepareOptions::mesh, or
  // the axes "fsdp" and, with copies, "dp_replicate" in front of it.
  DeviceMesh mesh;
  // All meshes for the config's degrees, for the loop: "cp" for
  // context_parallel, "batch" for which sequences a rank reads, "loss" for
  // averaging losses, and the others in parallel_dims.h. Absent with
  // PrepareOptions::mesh.
  std::optional<ParallelDims> dims;
  // For the loop's calls of context_parallel: the config's method.
  ContextParallelOptions context_parallel;
  FSDPModule root;
  std::vector<FSDPModule> groups;  // the root's last
  // Set if the config has activation_cpu_offload. While it lives, every forward
  // on the thread that called prepare keeps the tensors that it saves for
  // backward in CPU memory, without any work for the loop. The same thread must
  // destroy it.
  std::unique_ptr<ActivationOffload> activation_offload;
  // Set if the config has a schedule and there was an optimizer. The loop calls
  // step() on it after the optimizer's step(), and saves it together with the
  // model and the optimizer. Owners: this, and state dicts with it.
  std::shared_ptr<LearningRate> learning_rate;
  // Set if the config has a folder. Steps are always saved sharded, so that any
  // number of ranks can resume from them.
  std::unique_ptr<CheckpointManager> checkpoints;
  // The newest complete step in the folder. If there is one, initial_load_path
  // was not read, and the loop resumes.
  std::optional<int64_t> latest_step;
  // The file that finish writes; empty: none. "<folder>/model.safetensors" if
  // state_dict_type is FULL_STATE_DICT or last_save_model_only is set.
  std::string full_model_path;
  std::optional<dcp::DType> export_dtype;

  // After the last step: waits until all saves are durable, then rank 0 writes
  // full_model_path from `step`, in which the loop saved the model under
  // "model", a window at a time. Collective.
  absl::Status finish(int64_t step);
};

// Errors name the place in the config. Everything on which the config, the
// model and the rank count can disagree is checked before the model changes;
// after that, only reading the weights, callbacks and a plan that does not fit
// the modules can fail.
//   - tensor_parallel_degree above 1 requires a plan, in PrepareOptions or in
//     the config, or a function there.
//   - context_parallel_degree: parameters are cut over the ranks that share
//     sequences as well; the loop calls context_parallel on each batch, with
//     Prepared::dims and Prepared::context_parallel.
//   - expert_parallel_degree divides every GroupedExperts in the model; a loop
//     with an expert_bias calls update_expert_bias.
//   - pipeline_parallel_degree above 1 is an error that says how to proceed.
//   - The parameters are cast to precision.dtype if the config sets it or
//     computes in another precision.
//   - With cpu_ram_efficient_loading every rank gets rank 0's weights: those in
//     initial_load_path or else in rank 0's model. The other ranks may have
//     built their models on the meta device.
//   - initial_load_path is a model, or a run's step with a "model" entry.
//   - Every n-th layer is checkpointed, n = activation_checkpointing. Layers
//     have the types that the config or `layers` names; without names they are
//     the groups. With 0 the model stays as it is.
//   - activation_cpu_offload is switched on last, so nothing is offloaded after
//     an error.
//   - output_dtype applies to the root, which must then be called by
//     fsdp::forward.
absl::StatusOr<Prepared> prepare(
    const std::shared_ptr<torch::nn::Module>& model, const TrainConfig& config,
    const PrepareOptions& options = {});

template <typename Impl>
absl::StatusOr<Prepared> prepare(const torch::nn::ModuleHolder<Impl>& model,
                                 const TrainConfig& config,
                                 const PrepareOptions& options = {}) {
  return prepare(std::static_pointer_cast<torch::nn::Module>(model.ptr()),
                 config, options);
}

}  // namespace fsdp

#endif  // FSDP_PREPARE_PREPARE_H_
