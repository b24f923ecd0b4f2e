// prepare: from a model and a TrainConfig to what a training loop needs, in
// one call and in the legal order: tensor parallelism, activation
// checkpointing, fully_shard, weights, optimizer, learning rate, checkpoints.
// For the thread
// that trains; collective: every rank calls it with the same config.
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
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/tensor/dtype.h"
#include "dcp/torch/checkpoint_manager.h"
#include "fsdp/activation_offload.h"
#include "fsdp/config/train_config.h"
#include "fsdp/device_mesh.h"
#include "fsdp/dtensor.h"
#include "fsdp/fully_shard.h"
#include "fsdp/prepare/learning_rate.h"
#include "torch/nn/module.h"
#include "torch/nn/pimpl.h"
#include "torch/optim/optimizer.h"

namespace fsdp {

struct PrepareOptions {
  // Types of the model's own layers (transformers' _no_split_modules), for a
  // config that names none.
  std::vector<std::string> layers = {};
  // Names in a config that this model spells otherwise: {"LlamaDecoderLayer",
  // "BlockImpl"}. A name that lacks Impl alone needs none.
  std::vector<std::pair<std::string, std::string>> type_names = {};
  // Built from the model's parameters before this call; steps the shards
  // afterwards, with what the config says of lr, weight_decay, betas and eps
  // (set_hyperparameters). Null: the caller builds it afterwards, with
  // adamw_options. It must outlive Prepared::learning_rate.
  torch::optim::Optimizer* optimizer = nullptr;
  // Optimizer steps of the run, for the schedule of a config that counts in
  // epochs; 0: the config says it.
  int64_t num_steps = 0;
  // Initialises a model that was built on the meta device, after it is
  // sharded. Unset: fsdp::init::default_ with the config's seed.
  std::function<void(torch::nn::Module&)> init_weights = {};
  // Cuts the model's layers over the ranks of the axis; wanted, with the
  // second, when the config has tensor_parallel_degree above 1. Called before
  // anything else is changed. The second says of what a cut parameter is a
  // part; see FullyShardOptions.
  std::function<void(torch::nn::Module&, const DeviceMesh& mesh)> parallelize =
      {};
  std::function<std::optional<DTensorSpec>(const std::string& name,
                                           const at::Tensor&)>
      tensor_parallel_fn = {};
  // Switches activation checkpointing of a layer on, of a model whose layers
  // are neither in a Sequential nor held as fsdp::Checkpointed.
  std::function<void(torch::nn::Module& layer)> checkpoint_layer = {};
  // Changes what fully_shard is told of one module, as the kwargs of Composer's
  // _fsdp_wrap do: reshard_after_forward, mp_policy, offload_policy,
  // shard_placement_fn, all_gather_extension_fn. `name` is the module's, empty
  // for the root, which is asked for twice. Mesh, ignored and cut parameters
  // stay the config's, whatever it sets.
  std::function<void(const std::string& name, const torch::nn::Module& module,
                     FullyShardOptions& options)>
      shard_options = {};
  // What a config does not say of its checkpoints: keep_every, log, how they
  // are written. save_every, keep_last and async are the config's.
  dcp::CheckpointManagerOptions checkpoints = {};
  std::string device = "";  // "cpu", "cuda"; empty: cuda where there is one
};

struct Prepared {
  // Axes "replicate", "shard" and "tp"; but for "shard" those of one rank are
  // left out.
  DeviceMesh mesh;
  FSDPModule root;
  std::vector<FSDPModule> groups;  // the root's last
  // Where the config says activation_cpu_offload; null otherwise. While it
  // lives, every forward of the thread that called prepare, which also ends it,
  // keeps what it saves for backward in the memory of the CPU: the loop has
  // nothing to do for it.
  std::unique_ptr<ActivationOffload> activation_offload;
  // Where the config has a schedule and there was an optimizer; null
  // otherwise. The loop calls its step() after the optimizer's, and saves it
  // beside the model and the optimizer. Owners: this, and state dicts of it.
  std::shared_ptr<LearningRate> learning_rate;
  // Where the config has a folder. Steps are always saved sharded: only so
  // they can be resumed by any number of ranks.
  std::unique_ptr<dcp::CheckpointManager> checkpoints;
  // The newest whole step in the folder. When there is one, initial_load_path
  // was not read: the loop resumes.
  std::optional<int64_t> latest_step;
  // What finish writes; empty: nothing. "<folder>/model.safetensors" where
  // state_dict_type is FULL_STATE_DICT or last_save_model_only is set.
  std::string full_model_path;
  std::optional<dcp::DType> export_dtype;

  // After the last step: waits until all saves are durable, then rank 0 writes
  // full_model_path out of `step`, in which the loop saved the model under
  // "model", a window at a time. Collective.
  absl::Status finish(int64_t step);
};

// Errors name the place in the config. What the config, the model and the
// number of ranks can disagree on is checked before the model is changed; what
// can fail later is reading the weights, and what a callback does.
//   - the parameters are cast to precision.dtype, where the config says it or
//     computes in another precision
//   - with cpu_ram_efficient_loading rank 0's weights are everybody's: of
//     initial_load_path, else of its model, beside which others may have built
//     theirs on the meta device
//   - initial_load_path is a model, or a step of a run with a "model" entry
//   - every n-th layer is checkpointed, n = activation_checkpointing; layers
//     are of the types that the config or `layers` names, else the groups. With
//     0 the model stays as it is
//   - activation_cpu_offload is switched on last: nothing is offloaded after an
//     error
//   - output_dtype is that of the root, which is then called by fsdp::forward
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
