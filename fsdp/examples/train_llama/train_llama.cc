// SPDX-License-Identifier: Apache-2.0
// Trains a small Llama on a text, sharded over all ranks, with checkpoints; see
// --help. Read this file before you shard your own model: Train() from top to
// bottom, HowToPrepare(), and then checkpoints.cc.
//
// Tested by tests/fsdp/examples/resume_test.py.

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ATen/Context.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "c10/core/GradMode.h"
#include "fsdp/averaging/averaged_model.h"
#include "fsdp/averaging/averages_scope.h"
#include "fsdp/averaging/avg_fn.h"
#include "fsdp/checkpoint/state/torch_status.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/examples/train_llama/checkpoints.h"
#include "fsdp/examples/train_llama/data.h"
#include "fsdp/examples/train_llama/flags.h"
#include "fsdp/examples/train_llama/model.h"
#include "fsdp/examples/train_llama/parallel.h"
#include "fsdp/examples/train_llama/progress.h"
#include "fsdp/examples/train_llama/stages.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/launch.h"
#include "fsdp/mesh/mesh_collectives.h"
#include "fsdp/mesh/parallel_dims.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/module/init.h"
#include "fsdp/optim/clip_grad_norm.h"
#include "fsdp/optim/fused_adamw.h"
#include "fsdp/optim/muon_with_adamw.h"
#include "fsdp/parallel/activation.h"
#include "fsdp/parallel/context/context_parallel.h"
#include "fsdp/parallel/experts/expert_parallel.h"
#include "fsdp/prepare/prepare.h"
#include "torch/optim/adamw.h"

namespace llama {
namespace {

// Every rank draws all weights and keeps its part.
Llama MakeModel(const Config& config) {
  at::manual_seed(config.seed);
  Llama model(config.model);
  InitWeights(model, config.model);
  return model;
}

// No rank ever has more than a part: the model is built without memory, and
// DrawWeights is called once it is sharded.
Llama MakeLargeModel(const Config& config) {
  const fsdp::MetaDeviceGuard on_meta;
  return Llama(config.model);
}

// Each element is drawn by the rank that keeps it. The values depend only on
// the seed, not on the rank count.
void DrawWeights(const Config& config, torch::nn::Module& model) {
  fsdp::init::init_parameters(
      model,
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
  // Each expert's bias.
  for (at::Tensor& buffer : model.buffers()) buffer.zero_();
}

// Everything about this program that a sharding config cannot know. Each block
// becomes a group that is gathered before it runs and freed afterwards; the
// rest (embedding, last norm, output) is the root's group.
fsdp::PrepareOptions HowToPrepare(const Config& config,
                                  const fsdp::ParallelDims& dims,
                                  const Llama& model,
                                  torch::optim::Optimizer& optimizer) {
  return {
      .layers = {"BlockImpl"},
      // The corresponding type names in Python, for which people have configs.
      .type_names = {{"LlamaDecoderLayer", "BlockImpl"},
                     {"MistralDecoderLayer", "BlockImpl"},
                     {"Qwen2DecoderLayer", "BlockImpl"},
                     {"TransformerBlock", "BlockImpl"}},
      .optimizer = &optimizer,
      .init_weights =
          [&config](torch::nn::Module& model) { DrawWeights(config, model); },
      .mesh = dims.fsdp_mesh(),
      .parallelize =
          [&config, &dims](torch::nn::Module& whole, const auto& /*mesh*/) {
            CutLayers(config, dims, *whole.as<LlamaImpl>());
          },
      // Experts that ranks divide are sharded over another mesh than the rest
      // of their block, and before it.
      .shard_options =
          [&dims, &model](const std::string& /*name*/,
                          const torch::nn::Module& module,
                          const fsdp::FullyShardOptions& options) {
            if (dims.degrees().ep == 1) return;
            for (const auto& block : *model->layers) {
              if (block.get() != &module) continue;
              fsdp::fully_shard_experts(*block, dims, options);
            }
          },
      .checkpoints = {.keep_every = config.keep_every},
      .device = config.device};
}

// An optimizer for whole parameters; prepare gives it this rank's part of each,
// and the config's numbers.
std::unique_ptr<torch::optim::Optimizer> MakeOptimizer(const Config& config,
                                                       const Llama& model) {
  if (config.optimizer == "fused_adamw") {
    return std::make_unique<fsdp::FusedAdamW>(model->parameters());
  }
  if (config.optimizer == "muon") {
    fsdp::optim::MuonWithAdamWOptions options;
    // With this rule the learning rate and the weight decay are AdamW's.
    options.muon.adjust_lr_fn("match_rms_adamw");
    if (config.model.num_experts > 0) options.stacks = {"layers.*.experts.*"};
    return std::make_unique<fsdp::optim::MuonWithAdamW>(
        *model,
        [](const std::string& name, const std::vector<int64_t>& shape) {
          return absl::StartsWith(name, "layers.") && shape.size() >= 2;
        },
        options);
  }
  return std::make_unique<torch::optim::AdamW>(model->parameters());
}

// This rank's sequences in a step's i-th batch. Ranks that share layers or
// sequences have the same ones; with context parallelism each holds a part of
// every sequence.
Batch MakeBatch(const Config& config, const fsdp::ParallelDims& dims,
                const Corpus& corpus, int64_t step, int64_t i) {
  const std::optional<fsdp::DeviceMesh> readers =
      dims.get_optional_mesh("batch");
  const int64_t num_sequences =
      config.batch / (readers.has_value() ? readers->size() : 1);
  const int64_t reader = readers.has_value() ? readers->get_local_rank() : 0;
  Batch batch = corpus.MakeBatch(
      {.step = step,
       .first_sequence = i * config.batch + reader * num_sequences,
       .num_sequences = num_sequences});
  batch.tokens = batch.tokens.to(config.device);
  batch.targets = batch.targets.to(config.device);
  if (dims.degrees().cp > 1) {
    fsdp::context_parallel(
        dims.get_mesh("cp"), {&batch.tokens, &batch.targets},
        {.method = *config.train.mesh.context_parallel_method});
  }
  return batch;
}

// Null without --ema and --average-from.
std::shared_ptr<fsdp::optim::AveragedModel> MakeAverage(const Config& config,
                                                        const Llama& model) {
  if (!config.has_average()) return nullptr;
  return std::make_shared<fsdp::optim::AveragedModel>(
      *model, fsdp::optim::AveragedModelOptions{
                  .avg_fn = config.ema.has_value()
                                ? fsdp::optim::get_ema_avg_fn(*config.ema)
                                : fsdp::optim::get_swa_avg_fn(),
                  .steps = {.first = std::max<int64_t>(config.average_from, 1),
                            .every = config.average_every}});
}

// Runs forward and backward for all batches in a step. Returns the loss on this
// rank's sequences. Without grad mode it runs forward alone.
at::Tensor ForwardBackward(const Config& config, const fsdp::ParallelDims& dims,
                           const Corpus& corpus, int64_t step, Llama& model,
                           const BatchRunner& run) {
  fsdp::FSDPModule root = fsdp::get_fsdp_module(*model);
  at::Tensor total;
  for (int64_t i = 0; i < config.accumulate; ++i) {
    const Batch batch = MakeBatch(config, dims, corpus, step, i);
    // Gradients stay on this rank, unreduced, until the last batch.
    root.set_requires_gradient_sync(i + 1 == config.accumulate);
    const at::Tensor loss = run(batch);
    total = total.defined() ? total + loss : loss;
  }
  return total;
}

absl::Status TrainStep(const Config& config, const fsdp::ParallelDims& dims,
                       const Corpus& corpus, Llama& model,
                       const BatchRunner& run,
                       torch::optim::Optimizer& optimizer,
                       fsdp::LearningRate* learning_rate,
                       fsdp::optim::AveragedModel* average,
                       Checkpoints& checkpoints, Progress& progress) {
  optimizer.zero_grad();
  const at::Tensor loss =
      ForwardBackward(config, dims, corpus, progress.num_steps(), model, run);
  if (config.clip > 0) {
    // The norm covers all stages.
    fsdp::clip_grad_norm_(model->parameters(), config.clip, /*norm_type=*/2.0,
                          /*error_if_nonfinite=*/false,
                          dims.get_optional_mesh("pp"));
  }
  const absl::Status staged = checkpoints.BeforeOptimizerStep();
  if (!staged.ok()) return staged;
  fsdp::update_expert_bias(*model, dims.get_optional_mesh("loss"));
  optimizer.step();
  // Ranks average the parts that they have.
  if (average != nullptr) {
    average->update_after_step(*model, progress.num_steps() + 1);
  }
  progress.Add(loss, optimizer.param_groups()[0].options().get_lr());
  if (learning_rate != nullptr) learning_rate->step();
  return checkpoints.AfterStep();
}

// Prints the activations that this run's forwards offloaded on this rank.
void PrintOffloadedBytes(const fsdp::Prepared& training) {
  if (training.activation_offload == nullptr) return;
  constexpr double kMib = 1 << 20;
  Say(absl::StrFormat(
      "kept %.1f MiB of activations in the memory of the CPU until backward",
      static_cast<double>(training.activation_offload->num_saved_bytes()) /
          kMib));
}

// Prints the losses of the average and of the trained weights.
void PrintAverageLoss(const Config& config, const fsdp::ParallelDims& dims,
                      const Corpus& corpus, int64_t last_step, Llama& model,
                      const BatchRunner& run,
                      fsdp::optim::AveragedModel* average) {
  if (average == nullptr || last_step < 0) return;
  const c10::NoGradGuard no_grad;
  const auto evaluate = [&] {
    at::Tensor loss =
        ForwardBackward(config, dims, corpus, last_step, model, run)
            .to(at::kDouble);
    fsdp::AllReduce(loss, fsdp::ReduceOp::kAvg, fsdp::world_group());
    return loss.item<double>();
  };
  const double trained = evaluate();
  const fsdp::optim::AveragesScope averages(*average, *model);
  Say(absl::StrFormat(
      "the average of %d weights has loss %.4f on the last batch, and the "
      "trained weights %.4f",
      average->n_averaged(), evaluate(), trained));
}

// Prints the operators that could not compute with parts of activations. For
// them, this rank communicated to gather the parts.
void PrintGatheredOperators() {
  const std::map<std::string, int64_t> operators = fsdp::gathered_operators();
  if (operators.empty()) return;
  Say(absl::StrCat("gathered the arguments of ",
                   absl::StrJoin(operators, ", ", absl::PairFormatter(" ")),
                   " times"));
}

absl::Status Train(Config config) {
  fsdp::init_process_group();
  const absl::StatusOr<fsdp::ParallelDegrees> degrees =
      ChooseDegrees(config, fsdp::get_world_size(),
                    fsdp::ReadLaunch(fsdp::GetEnvironment).local_world_size);
  if (!degrees.ok()) return degrees.status();
  const int64_t num_readers = degrees->size("batch");
  absl::Status status = FitBatch(num_readers, &config);
  if (status.ok()) status = FitMicrobatches(num_readers, &config);
  if (!status.ok()) return status;
  const fsdp::ParallelDims dims =
      fsdp::init_parallel_dims(*degrees, config.device);
  Say(HeadsWarning(config));
  const absl::StatusOr<Corpus> corpus =
      Corpus::Open(config.data, config.seq_len, config.seed);
  if (!corpus.ok()) return corpus.status();

  Llama model =
      config.deterministic_init ? MakeLargeModel(config) : MakeModel(config);
  KeepStage(config, dims, model);
  const std::unique_ptr<torch::optim::Optimizer> optimizer =
      MakeOptimizer(config, model);
  absl::StatusOr<fsdp::Prepared> training = fsdp::prepare(
      model, config.train, HowToPrepare(config, dims, model, *optimizer));
  if (!training.ok()) return training.status();
  Progress progress(config);
  const std::shared_ptr<fsdp::optim::AveragedModel> average =
      MakeAverage(config, model);
  Checkpoints checkpoints({.config = config,
                           .data_bytes = corpus->num_bytes(),
                           .model = model,
                           .optimizer = *optimizer,
                           .progress = progress,
                           .training = *training,
                           .average = average});
  // The host waits for the experts' token counts, and cannot gather ahead by
  // itself.
  if (dims.degrees().ep > 1) fsdp::prefetch_blocks(model->layers->children());
  const BatchRunner run = MakeBatchRunner(config, dims, model);
  status = checkpoints.Begin();
  while (status.ok() && progress.num_steps() < config.steps &&
         !checkpoints.should_stop()) {
    status = TrainStep(config, dims, *corpus, model, run, *optimizer,
                       training->learning_rate.get(), average.get(),
                       checkpoints, progress);
  }
  if (status.ok()) {
    PrintAverageLoss(config, dims, *corpus, progress.num_steps() - 1, model,
                     run, average.get());
  }
  if (status.ok()) PrintOffloadedBytes(*training);
  if (status.ok()) PrintGatheredOperators();
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
  // LibTorch and the engine report errors, such as the death of another rank,
  // with exceptions.
  if (status.ok()) {
    status = fsdp::CatchTorch([&] { return Train(*config); });
  }
  if (status.ok()) return 0;
  absl::FPrintF(stderr, "train_llama: %s\n", status.message());
  return 1;
}

}  // namespace
}  // namespace llama

int main(int argc, char** argv) { return llama::Main(argc, argv); }
