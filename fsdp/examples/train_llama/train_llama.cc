// Trains a small Llama on a text, sharded over all ranks; see --help. This is
// the page to read before sharding a model of one's own: Train() from top to
// bottom, and ShardModel().

#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "ATen/Context.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/zeros.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "c10/core/CachingDeviceAllocator.h"
#include "fsdp/clip_grad_norm.h"
#include "fsdp/device_mesh.h"
#include "fsdp/examples/train_llama/config.h"
#include "fsdp/examples/train_llama/data.h"
#include "fsdp/examples/train_llama/model.h"
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
at::Tensor RunStep(const Config& config, const Corpus& corpus, int64_t step,
                   Llama& model) {
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

// Of this process, or of its GPU.
double PeakMemoryMib(const Config& config) {
  constexpr double kMib = 1 << 20;
  if (config.device == "cpu") {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_maxrss) * 1024 / kMib;
  }
  const auto stats = c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(
      static_cast<c10::DeviceIndex>(fsdp::get_local_rank()));
  return static_cast<double>(stats.allocated_bytes[0].peak) / kMib;
}

// The losses of all steps; averaged over ranks and printed now and then, for
// that is when ranks, and a GPU, have to be waited for.
class Progress {
 public:
  explicit Progress(const Config& config)
      : config_(config),
        losses_(
            at::zeros({config.steps},
                      at::TensorOptions(config.device).dtype(at::kDouble))) {}

  void Add(int64_t step, const at::Tensor& loss) {
    losses_[step].copy_(loss);
    const bool last = step + 1 == config_.steps;
    if ((step + 1) % config_.log_every == 0 || last) Print(step + 1);
  }

  absl::Status Write() const {
    if (config_.losses_out.empty() || fsdp::get_rank() != 0) {
      return absl::OkStatus();
    }
    std::ofstream file(config_.losses_out);
    for (int64_t step = 0; step < config_.steps; ++step) {
      file << absl::StrFormat("%.17g\n", losses_[step].item<double>());
    }
    if (file.flush()) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat("cannot write losses to '", config_.losses_out, "'"));
  }

 private:
  using Clock = std::chrono::steady_clock;

  void Print(int64_t end) {
    std::vector<at::Tensor> window = {losses_.slice(0, printed_, end)};
    c10d::AllreduceOptions average;
    average.reduceOp = c10d::ReduceOp::AVG;
    fsdp::world_group()->allreduce(window, average)->wait();
    const double loss = losses_[end - 1].item<double>();
    const std::chrono::duration<double> seconds = Clock::now() - begin_;
    const int64_t tokens =
        (end - printed_) * config_.accumulate * config_.batch * config_.seq_len;
    if (fsdp::get_rank() == 0) {
      absl::PrintF(
          "step %d of %d  loss %.4f  %.0f tokens/s  peak memory %.0f MiB\n",
          end, config_.steps, loss,
          static_cast<double>(tokens) / seconds.count(),
          PeakMemoryMib(config_));
      std::fflush(stdout);
    }
    printed_ = end;
    begin_ = Clock::now();
  }

  const Config& config_;
  at::Tensor losses_;
  int64_t printed_ = 0;
  Clock::time_point begin_ = Clock::now();
};

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
  for (int64_t step = 0; step < config.steps; ++step) {
    optimizer->zero_grad();
    const at::Tensor loss = RunStep(config, *corpus, step, model);
    if (config.clip > 0) {
      fsdp::clip_grad_norm_(model->parameters(), config.clip);
    }
    optimizer->step();
    progress.Add(step, loss);
  }
  status = progress.Write();
  fsdp::destroy_process_group();
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
