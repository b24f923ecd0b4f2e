// Trains a small Llama on a text, sharded over all ranks, with checkpoints; see
// --help. This is the page to read before sharding a model of one's own:
// Train() from top to bottom, ShardModel(), and then checkpoints.cc.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ATen/Context.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fsdp/clip_grad_norm.h"
#include "fsdp/device_mesh.h"
#include "fsdp/examples/train_llama/checkpoints.h"
#include "fsdp/examples/train_llama/config.h"
#include "fsdp/examples/train_llama/data.h"
#include "fsdp/examples/train_llama/model.h"
#include "fsdp/examples/train_llama/progress.h"
#include "fsdp/fully_shard.h"
#include "fsdp/fused_adamw.h"
#include "fsdp/init.h"
#include "fsdp/lazy_key.h"
#include "fsdp/materialize.h"
#include "fsdp/process_group.h"
#include "torch/optim/adamw.h"

namespace llama {
namespace {

at::ScalarType DtypeNamed(const std::string& name) {
  if (name == "bfloat16") return at::kBFloat16;
  if (name == "float16") return at::kHalf;
  return at::kFloat;
}

fsdp::ReshardAfterForward ParseReshard(const std::string& text) {
  int64_t num_ranks = 0;
  if (absl::SimpleAtoi(text, &num_ranks)) return num_ranks;
  if (text == "auto") return {};
  return text == "true";
}

// What only the number of ranks can tell.
absl::Status CheckRanks(const Config& config) {
  const int64_t world = fsdp::get_world_size();
  const int64_t shard =
      config.shard == 0 ? world / config.replicate : config.shard;
  if (config.replicate * shard != world) {
    return absl::InvalidArgumentError(
        absl::StrCat("--replicate=", config.replicate, " times --shard=", shard,
                     " is not the number of ranks, ", world));
  }
  if (config.batch % world != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--batch=", config.batch, " is not a multiple of ", world, " ranks"));
  }
  return absl::OkStatus();
}

// One axis to shard over, or two: copies, and the ranks that share a copy.
fsdp::DeviceMesh MakeMesh(const Config& config) {
  const int64_t world = fsdp::get_world_size();
  if (config.replicate == 1) {
    return fsdp::init_device_mesh(config.device, {world}, {"shard"});
  }
  return fsdp::init_device_mesh(config.device,
                                {config.replicate, world / config.replicate},
                                {"replicate", "shard"});
}

// Each block becomes a group that is gathered before it runs and freed after;
// what is left (embedding, last norm, output) is the group of the root.
void ShardModel(const Config& config, const fsdp::DeviceMesh& mesh,
                const Llama& model) {
  const fsdp::FullyShardOptions options = {
      .mesh = mesh,
      .reshard_after_forward = ParseReshard(config.reshard_after_forward),
      .mp_policy = {.param_dtype = DtypeNamed(config.param_dtype),
                    .reduce_dtype = DtypeNamed(config.reduce_dtype)}};
  for (const std::shared_ptr<torch::nn::Module>& block : *model->layers) {
    fsdp::fully_shard(block, options);
  }
  fsdp::fully_shard(model, options);
}

// Every rank draws all weights, and keeps its part.
Llama MakeModel(const Config& config, const fsdp::DeviceMesh& mesh) {
  at::manual_seed(config.seed);
  Llama model(config.model);
  InitWeights(model, config.model);
  ShardModel(config, mesh, model);
  return model;
}

// No rank ever has more than its part: the model is built without memory, and
// each element drawn by the rank that keeps it. What is drawn depends on the
// seed alone, not on how many ranks there are.
Llama MakeLargeModel(const Config& config, const fsdp::DeviceMesh& mesh) {
  Llama model{nullptr};
  {
    const fsdp::MetaDeviceGuard on_meta;
    model = Llama(config.model);
  }
  ShardModel(config, mesh, model);
  fsdp::to_empty(model, mesh.device());
  fsdp::init::init_parameters(
      *model,
      [&config](const std::string& name, const fsdp::init::Target& parameter,
                uint64_t seed) {
        if (parameter.shape().size() == 1) {
          fsdp::init::ones_(parameter);
        } else {
          fsdp::init::normal_(parameter, 0.0, InitialStd(config.model, name),
                              seed);
        }
      },
      static_cast<uint64_t>(config.seed));
  return model;
}

// Sees shards alone: this rank's part of each parameter.
std::unique_ptr<torch::optim::Optimizer> MakeOptimizer(const Config& config,
                                                       const Llama& model) {
  if (config.optimizer == "fused_adamw") {
    return std::make_unique<fsdp::FusedAdamW>(
        model->parameters(),
        fsdp::FusedAdamWOptions(config.lr).weight_decay(config.weight_decay));
  }
  return std::make_unique<torch::optim::AdamW>(
      model->parameters(),
      torch::optim::AdamWOptions(config.lr).weight_decay(config.weight_decay));
}

// Forward and backward of all batches of a step. Returns this rank's loss.
at::Tensor ForwardBackward(const Config& config, const Corpus& corpus,
                           int64_t step, Llama& model) {
  fsdp::FSDPModule root = fsdp::get_fsdp_module(*model);
  const int64_t slice = config.batch / fsdp::get_world_size();
  at::Tensor total;
  for (int64_t i = 0; i < config.accumulate; ++i) {
    const Batch batch = corpus.MakeBatch(
        {.step = step,
         .first_sequence = i * config.batch + fsdp::get_rank() * slice,
         .num_sequences = slice});
    // Gradients stay here, unreduced, until the last batch.
    root.set_requires_gradient_sync(i + 1 == config.accumulate);
    const at::Tensor logits =
        model(batch.tokens.to(config.device)).to(at::kFloat);
    const at::Tensor loss =
        at::cross_entropy_loss(logits.flatten(0, 1),
                               batch.targets.to(config.device).flatten()) /
        config.accumulate;
    loss.backward();
    total = total.defined() ? total + loss.detach() : loss.detach();
  }
  return total;
}

absl::Status TrainStep(const Config& config, const Corpus& corpus, Llama& model,
                       torch::optim::Optimizer& optimizer,
                       Checkpoints& checkpoints, Progress& progress) {
  optimizer.zero_grad();
  const at::Tensor loss =
      ForwardBackward(config, corpus, progress.num_steps(), model);
  if (config.clip > 0) {
    fsdp::clip_grad_norm_(model->parameters(), config.clip);
  }
  const absl::Status staged = checkpoints.BeforeOptimizerStep();
  if (!staged.ok()) return staged;
  optimizer.step();
  progress.Add(loss);
  return checkpoints.AfterStep();
}

absl::Status Train(const Config& config) {
  fsdp::init_process_group();
  absl::Status status = CheckRanks(config);
  if (!status.ok()) return status;
  const absl::StatusOr<Corpus> corpus =
      Corpus::Open(config.data, config.seq_len, config.seed);
  if (!corpus.ok()) return corpus.status();

  const fsdp::DeviceMesh mesh = MakeMesh(config);
  Llama model = config.deterministic_init ? MakeLargeModel(config, mesh)
                                          : MakeModel(config, mesh);
  const std::unique_ptr<torch::optim::Optimizer> optimizer =
      MakeOptimizer(config, model);
  Progress progress(config);
  Checkpoints checkpoints({.config = config,
                           .data_bytes = corpus->num_bytes(),
                           .model = model,
                           .optimizer = *optimizer,
                           .progress = progress});
  status = checkpoints.Begin();
  while (status.ok() && progress.num_steps() < config.steps &&
         !checkpoints.should_stop()) {
    status =
        TrainStep(config, *corpus, model, *optimizer, checkpoints, progress);
  }
  if (status.ok()) status = progress.WriteLosses();
  if (status.ok()) status = checkpoints.Finish();
  if (status.ok()) fsdp::destroy_process_group();
  return status;
}

int Main(int argc, char** argv) {
  const absl::StatusOr<Config> config =
      ParseFlags(std::vector<std::string>(argv + 1, argv + argc));
  absl::Status status = config.status();
  if (config.ok() && config->help) {
    absl::PrintF("%s", HelpText());
    return 0;
  }
  if (status.ok()) status = Train(*config);
  if (status.ok()) return 0;
  absl::FPrintF(stderr, "train_llama: %s\n", status.message());
  return 1;
}

}  // namespace
}  // namespace llama

int main(int argc, char** argv) { return llama::Main(argc, argv); }
