// SPDX-License-Identifier: Apache-2.0
// PrepareOptions: the facts that prepare needs and a config does not contain.
#ifndef FSDP_PREPARE_PREPARE_OPTIONS_H_
#define FSDP_PREPARE_PREPARE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/checkpoint/checkpoint_manager.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/parallel/tensor/parallelize_module.h"
#include "torch/nn/module.h"
#include "torch/optim/optimizer.h"

namespace fsdp {

struct PrepareOptions {
  // The model's own layer types (transformers' _no_split_modules), for a config
  // that names none.
  std::vector<std::string> layers = {};
  // Names in a config that this model spells differently: {"LlamaDecoderLayer",
  // "BlockImpl"}. A name that only lacks Impl needs no entry.
  std::vector<std::pair<std::string, std::string>> type_names = {};
  // Built from the model's parameters before this call; steps the shards
  // afterwards, with the config's lr, weight_decay, betas and eps
  // (set_hyperparameters). Null: the caller builds it afterwards, with
  // adamw_options. It must outlive Prepared::learning_rate.
  torch::optim::Optimizer* optimizer = nullptr;
  // The run's optimizer steps, for a config with a schedule in epochs; 0: the
  // config has the number.
  int64_t num_steps = 0;
  // Initialises a model that was built on the meta device, after it is
  // sharded. Unset: fsdp::init::default_ with the config's seed.
  std::function<void(torch::nn::Module&)> init_weights = {};
  // How layers are cut if the config has a tensor_parallel_degree above 1:
  // parallelize_module's plan, which load_plan reads from a file. It precedes a
  // plan in the config. Empty: that, or `parallelize`.
  ParallelizePlan parallelize_plan = {};
  // The mesh for fully_shard, one axis or a copy's axis in front of it, for a
  // program that makes the meshes for its parallelisms itself
  // (init_parallel_dims). Unset: prepare makes them from the config's degrees,
  // which it does not read otherwise.
  std::optional<DeviceMesh> mesh = {};
  // Applies parallelisms for which no plan is enough, before anything else
  // changes. It gets the tensor parallelism axis, if that has several ranks;
  // with `mesh` it gets that, and is always called.
  std::function<void(torch::nn::Module&, const DeviceMesh& mesh)> parallelize =
      {};
  // For parameters that `parallelize` has cut by hand: describes the whole; see
  // FullyShardOptions.
  std::function<std::optional<DTensorSpec>(const std::string& name,
                                           const at::Tensor&)>
      tensor_parallel_fn = {};
  // Switches activation checkpointing on for one layer, if the model holds
  // layers neither in a Sequential nor as fsdp::Checkpointed.
  std::function<void(torch::nn::Module& layer)> checkpoint_layer = {};
  // Changes fully_shard's options for one module, as the kwargs from Composer's
  // _fsdp_wrap do: reshard_after_forward, mp_policy, offload_policy,
  // shard_placement_fn, all_gather_extension_fn. `name` is the module's, empty
  // for the root, for which it is called twice. Mesh, ignored and cut
  // parameters stay the config's, whatever the function sets. Experts that are
  // divided among ranks have the config's.
  std::function<void(const std::string& name, const torch::nn::Module& module,
                     FullyShardOptions& options)>
      shard_options = {};
  // Checkpoint options that a config does not have: keep_every, log, how they
  // are written. save_every, keep_last and async are the config's.
  CheckpointManagerOptions checkpoints = {};
  std::string device = "";  // "cpu", "cuda"; empty: cuda if there is one
};

}  // namespace fsdp

#endif  // FSDP_PREPARE_PREPARE_OPTIONS_H_
