// prepare: from a model and a TrainConfig to what a training loop needs, in
// one call and in the legal order: tensor parallelism, activation
// checkpointing, fully_shard, weights, optimizer, checkpoints. For the thread
// that trains; collective: every rank calls it with the same config.
//
//   DCP_ASSIGN_OR_RETURN(const fsdp::TrainConfig config,
//                        fsdp::load_config("accelerate.yaml"));
//   auto model = std::make_shared<MyModel>();
//   torch::optim::AdamW optimizer(model->parameters(), 3e-4);
//   DCP_ASSIGN_OR_RETURN(fsdp::Prepared training,
//                        fsdp::prepare(model, config,
//                                      {.layers = {"BlockImpl"},
//                                       .optimizer = &optimizer}));
#ifndef FSDP_PREPARE_PREPARE_H_
#define FSDP_PREPARE_PREPARE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "dcp/torch/checkpoint_manager.h"
#include "fsdp/config/train_config.h"
#include "fsdp/device_mesh.h"
#include "fsdp/fully_shard.h"
#include "torch/nn/module.h"
#include "torch/nn/pimpl.h"
#include "torch/optim/optimizer.h"

namespace fsdp {

struct PrepareOptions {
  // Types of the model's own layers (transformers' _no_split_modules), for a
  // config that names none.
  std::vector<std::string> layers = {};
  // Names in a config that this model spells otherwise: {"LlamaDecoderLayer",
  // "BlockImpl"}.
  std::vector<std::pair<std::string, std::string>> type_names = {};
  // Built from the model's parameters before this call; steps the shards
  // afterwards. Null: the caller builds it afterwards.
  torch::optim::Optimizer* optimizer = nullptr;
  // Initialises a model that was built on the meta device, after it is
  // sharded. Unset: fsdp::init::default_ with the config's seed.
  std::function<void(torch::nn::Module&)> init_weights = {};
  // Cuts the model's layers over the ranks of the axis; wanted when the config
  // has tensor_parallel_degree above 1. Called first. The second says of what
  // a cut parameter is a part; see FullyShardOptions.
  std::function<void(torch::nn::Module&, const DeviceMesh& mesh)> parallelize =
      {};
  std::function<std::optional<DTensorSpec>(const std::string& name,
                                           const at::Tensor&)>
      tensor_parallel_fn = {};
  // Switches activation checkpointing of a layer on, of a model whose layers
  // are neither in a Sequential nor held as fsdp::Checkpointed.
  std::function<void(torch::nn::Module& layer)> checkpoint_layer = {};
  std::string device = "";  // "cpu", "cuda"; empty: cuda where there is one
};

struct Prepared {
  DeviceMesh mesh;
  FSDPModule root;
  std::vector<FSDPModule> groups;  // the root's last
  // Where the config has a folder.
  std::unique_ptr<dcp::CheckpointManager> checkpoints;
};

// Errors name the place in the config. Before anything is sharded, all that
// the config, the model and the number of ranks can disagree on is checked.
absl::StatusOr<Prepared> prepare(
    const std::shared_ptr<torch::nn::Module>& model, const TrainConfig& config,
    const PrepareOptions& options = {});

}  // namespace fsdp

#endif  // FSDP_PREPARE_PREPARE_H_
