// SPDX-License-Identifier: Apache-2.0
// Reads train_llama's options, and checks each against the others.
//
// Tested by tests/fsdp/examples/train_llama_test.cc.
#include "fsdp/examples/train_llama/flags.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "config/read_config.h"
#include "dcp/options/option_help.h"
#include "dcp/options/option_words.h"
#include "dcp/options/setting_lines.h"
#include "fsdp/examples/train_llama/how_to_train.h"
#include "fsdp/examples/train_llama/option.h"
#include "fsdp/examples/train_llama/parallel.h"

namespace llama {
namespace {

// The column at which options' explanations begin.
constexpr int kHelpColumn = 28;

// The keys for the model and the data; each writes into `c`.
std::vector<Option> ModelAndData(Config* c) {
  ModelOptions& m = c->model;
  return {
      Text("data", &c->data, "a text file; its bytes are the tokens"),
      Integer("seq-len", &c->seq_len, 1, "bytes in a sequence"),
      Integer("batch", &c->batch, 1,
              "sequences of all ranks together; default 8"),
      Integer("accumulate", &c->accumulate, 1,
              "batches in a step, reduced after the last; default 1"),
      Integer("steps", &c->steps, 1, "steps of the optimizer"),
      Integer("seed", &c->seed, 0, "seed of the weights and of the data"),
      Integer("dim", &m.dim, 1, "width of the model"),
      Integer("layers", &m.num_layers, 1, "number of blocks"),
      Integer("heads", &m.num_heads, 1, "attention heads"),
      Integer("kv-heads", &m.num_kv_heads, 1,
              "heads of keys and values; fewer than heads: grouped-query"),
      Integer("ffn-dim", &m.ffn_dim, 1, "width inside the feed-forward"),
      Integer("experts", &m.num_experts, 0,
              "in each block, in place of its feed-forward; 0: none"),
      Integer("top-k", &m.top_k, 1, "with --experts: how many a token has"),
      Switch("tied-embeddings", &m.tied_embeddings,
             "the output layer is the embedding"),
  };
}

std::vector<Option> TrainingAndSharding(Config* c) {
  fsdp::TrainConfig& t = c->train;
  return {
      Choice("optimizer", &c->optimizer, {"adamw", "fused_adamw", "muon"},
             "AdamW of torch::optim or fused; or Muon for blocks' matrices"),
      Real("lr", &t.loop.lr, "learning rate"),
      Decay("lr-decay", &t.loop.lr_schedule,
            "after the warmup: constant, linear, cosine or sqrt"),
      WarmupSteps("warmup-steps", &t.loop.lr_schedule,
                  "steps in which the learning rate grows"),
      CountsFromOne("lr-counts-from-one", &t.loop.lr_schedule,
                    "the first step has a learning rate, as in TorchTitan"),
      Real("weight-decay", &t.loop.weight_decay, "AdamW's weight decay"),
      Real("beta1", &t.loop.beta1, "AdamW's first beta"),
      Real("beta2", &t.loop.beta2, "AdamW's second beta"),
      Real("eps", &t.loop.eps, "AdamW's epsilon"),
      Real("clip", &c->clip, "largest norm of the gradients; 0: no limit"),
      Real("ema", &c->ema,
           "keep an average of the weights with this decay, from 0 to 1"),
      Integer("average-from", &c->average_from, 0,
              "the average's first step; without --ema, a mean; 0: none"),
      Integer("average-every", &c->average_every, 1,
              "steps between the weights that an average takes"),
      Choice("device", &c->device, {"cpu", "cuda"}, "where to train"),
      Integer("replicate", &t.mesh.data_parallel_replicate_degree, 1,
              "copies of the model; more than 1 is HSDP"),
      ShardDegree("shard", &t.mesh.data_parallel_shard_degree,
                  "ranks that share a copy; 0: all, divided by --replicate"),
      Reshard("reshard-after-forward", &t.sharding.reshard_after_forward,
              "auto, true, false, or a number of ranks"),
      Dtype("param-dtype", &t.precision.param_dtype,
            "the type to compute with"),
      Dtype("reduce-dtype", &t.precision.reduce_dtype,
            "the type to reduce gradients with; default: the shards'"),
      EveryBlock("checkpoint-activations", &t.sharding.activation_checkpointing,
                 "compute blocks again in backward; =2: every other"),
      Switch("offload-activations", &t.sharding.activation_cpu_offload,
             "keep the tensors that backward needs in CPU memory"),
      Switch("deterministic-init", &c->deterministic_init,
             "build on the meta device; each rank makes only its part"),
      Integer("log-every", &c->log_every, 1, "steps between progress lines"),
      Text("losses-out", &c->losses_out, "a file for the losses, one per line"),
  };
}

std::vector<Option> OtherParallelisms(Config* c) {
  return {
      Integer("tp", &c->train.mesh.tensor_parallel_degree, 1,
              "ranks that share each layer: tensor parallelism"),
      Switch("sp", &c->sequence_parallel,
             "with --tp: the layers in between by parts of the sequence"),
      Text("plan", &c->plan,
           "with --tp: how to cut layers, by name; YAML, JSON or TOML"),
      Integer("cp", &c->train.mesh.context_parallel_degree, 1,
              "ranks that share each sequence: context parallelism"),
      Choice("cp-method", &c->train.mesh.context_parallel_method,
             {"allgather", "alltoall", "ulysses"},
             "with --cp: gather keys, ring attention, or divide heads"),
      Integer("ep", &c->train.mesh.expert_parallel_degree, 1,
              "ranks that divide the experts: expert parallelism"),
      Integer("pp", &c->train.mesh.pipeline_parallel_degree, 1,
              "ranks of a pipeline, each with some of the blocks"),
      Integer("microbatches", &c->microbatches, 1,
              "with --pp: pieces of a batch; default: one for each stage"),
      Choice(
          "pp-schedule", &c->pipeline_schedule,
          {"1f1b", "gpipe", "interleaved", "zero-bubble", "zbv", "dualpipev"},
          "with --pp: the order of the work; the last four wait less"),
      Integer("pp-stages", &c->stages_per_rank, 1,
              "with --pp: stages on each rank; default: 1, or 2 from "
              "interleaved on"),
  };
}

std::vector<Option> Saving(Config* c) {
  fsdp::CheckpointConfig& t = c->train.checkpoint;
  return {
      Text(
          "checkpoint-dir", &t.folder,
          "a folder, or s3://bucket/run, for step-N; continue from the newest"),
      Integer("save-every", &t.interval, 0,
              "steps between saves; 0: after the last, and on SIGTERM"),
      Integer("keep-last", &t.keep_latest_k, 0,
              "how many of the newest steps to keep; 0: all"),
      Integer("keep-every", &c->keep_every, 0,
              "of older steps, keep every N-th; 0: none"),
      Text("init-from", &t.initial_load_path,
           "weights to begin with: a checkpoint, or one of a dcp-server"),
      Text("export", &c->export_to,
           "write the whole model at the end, or its average if there is one: "
           ".safetensors, .pt, folder"),
  };
}

std::vector<Option> AllOptions(Config* config) {
  std::vector<Option> options = ModelAndData(config);
  for (const auto& more : {TrainingAndSharding(config),
                           OtherParallelisms(config), Saving(config)}) {
    options.insert(options.end(), more.begin(), more.end());
  }
  return options;
}

// Saves run while training continues, unless a config says otherwise.
Config DefaultConfig() {
  Config config;
  config.train.checkpoint.async = true;
  config.train.loop.lr = std::optional(3e-3);
  config.train.loop.weight_decay = std::optional(0.1);
  return config;
}

// Checks values that a config may have but lines and flags cannot.
absl::Status CheckLoop(const Config& config) {
  for (const auto& [key, value] : {std::pair("steps", config.steps),
                                   std::pair("seq-len", config.seq_len)}) {
    if (value < 1) return Refuse(key, absl::StrCat(value), "positive");
  }
  const fsdp::LoopConfig& loop = config.train.loop;
  for (const auto& [key, beta] :
       {std::pair("beta1", *loop.beta1), std::pair("beta2", *loop.beta2)}) {
    if (beta.value_or(0) >= 1) {
      return Refuse(key, absl::StrCat(*beta), "below 1");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAverage(const Config& config) {
  if (config.ema.value_or(0) > 1) {
    return Refuse("ema", absl::StrCat(*config.ema), "a number from 0 to 1");
  }
  if (config.average_every > 1 && !config.has_average()) {
    return absl::InvalidArgumentError(
        "--average-every requires --ema=DECAY, or --average-from=STEP for a "
        "mean with equal weights");
  }
  return absl::OkStatus();
}

// Checks options that make no sense without others.
absl::Status CheckSaving(const Config& config) {
  const fsdp::CheckpointConfig& saving = config.train.checkpoint;
  const std::vector<std::pair<std::string, bool>> need_a_folder = {
      {"save-every", *saving.interval > 0 && !config.has_file},
      {"keep-last", *saving.keep_latest_k > 0 && !config.has_file},
      {"keep-every", config.keep_every > 0},
      {"export", !config.export_to.empty()}};
  for (const auto& [key, is_set] : need_a_folder) {
    if (is_set && saving.folder->empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", key,
          " requires --checkpoint-dir=FOLDER, where steps are saved"));
    }
  }
  if (config.keep_every > 0 && *saving.keep_latest_k == 0) {
    return absl::InvalidArgumentError(
        "--keep-every requires --keep-last, without which all steps are kept");
  }
  return absl::OkStatus();
}

absl::Status ReadOptionsFile(const std::string& path, Config* config) {
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)),
                         std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad()) {
    return absl::NotFoundError(
        absl::StrCat("cannot read options '", path, "'"));
  }
  return ReadOptionsText(path, text, config);
}

using KeyAndValue = std::pair<std::string, std::string>;

absl::Status NoSuchOption(absl::string_view key) {
  return absl::InvalidArgumentError(
      absl::StrCat("the option '", key, "' is not known; see --help"));
}

// Splits "--key=value", "--key value" and "--switch".
absl::StatusOr<std::vector<KeyAndValue>> SplitFlags(
    const std::vector<std::string>& flags) {
  Config scratch;
  const std::vector<Option> options = AllOptions(&scratch);
  std::vector<dcp::OptionSpec> specs = {
      {"config", true}, {"options", true}, {"help", false}};
  for (const Option& option : options) {
    specs.push_back({option.key, !option.is_switch});
  }
  using Kind = dcp::OptionWord::Kind;
  std::vector<KeyAndValue> pairs;
  for (const dcp::OptionWord& word : dcp::SplitOptionWords(
           flags, specs, {.style = dcp::OptionSyntax::Style::kSettings})) {
    if (word.kind == Kind::kShort && word.text == "-h") {
      pairs.emplace_back("help", "true");
    } else if (word.kind == Kind::kShort || word.kind == Kind::kOperand) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", word.text, "' is not a flag; see --help"));
    } else if (word.kind == Kind::kMissingValue) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", word.name, " requires a value; see --help"));
    } else if (word.kind != Kind::kOption) {
      return NoSuchOption(word.name);
    } else {
      pairs.emplace_back(word.name, word.has_value ? word.value : "true");
    }
  }
  return pairs;
}

std::string Table(const std::vector<Option>& options) {
  std::string text;
  for (const Option& option : options) {
    const bool shows_value =
        !option.value.empty() && !absl::StrContains(option.help, "default");
    dcp::AppendOptionHelp(
        absl::StrCat("--", option.key),
        absl::StrCat(option.help,
                     shows_value ? absl::StrCat(" (", option.value, ")") : ""),
        kHelpColumn, text);
  }
  return text;
}

// Takes over a file's loop settings; flags may override them.
void TakeLoop(const fsdp::LoopConfig& otherwise, Config* config) {
  fsdp::LoopConfig& loop = config->train.loop;
  config->steps = loop.steps->value_or(config->steps);
  config->seq_len = loop.seq_len->value_or(config->seq_len);
  config->seed = loop.seed->value_or(config->seed);
  config->clip = loop.max_norm->value_or(config->clip);
  if (!loop.lr->has_value()) loop.lr = otherwise.lr;
  if (!loop.weight_decay->has_value()) {
    loop.weight_decay = otherwise.weight_decay;
  }
}

absl::Status ReadFiles(const std::vector<KeyAndValue>& pairs, Config* config) {
  for (const auto& [key, value] : pairs) {
    if (key != "config") continue;
    absl::StatusOr<fsdp::TrainConfig> train = fsdp::load_config(value);
    if (!train.ok()) return train.status();
    const fsdp::LoopConfig otherwise =
        std::exchange(config->train, *std::move(train)).loop;
    config->has_file = true;
    TakeLoop(otherwise, config);
  }
  for (const auto& [key, value] : pairs) {
    if (key != "options") continue;
    const absl::Status read = ReadOptionsFile(value, config);
    if (!read.ok()) return read;
  }
  return absl::OkStatus();
}

// Only rank 0 reads a file, whatever the format, and sends the parts to the
// ranks. A daemon gives each rank the shards for the rank's place on the mesh,
// and pipeline stages read their own layers.
void ChooseReader(Config* config) {
  fsdp::CheckpointConfig& checkpoint = config->train.checkpoint;
  if (checkpoint.initial_load_path->empty()) return;
  if (checkpoint.cpu_ram_efficient_loading.place().has_value()) return;
  checkpoint.cpu_ram_efficient_loading =
      *config->train.mesh.pipeline_parallel_degree == 1 &&
      !absl::StartsWith(*checkpoint.initial_load_path, "tessera://");
}

// By default, pipeline stages gather their parameters once in a step, not for
// each microbatch.
void ChooseReshard(Config* config) {
  auto& reshard = config->train.sharding.reshard_after_forward;
  if (*config->train.mesh.pipeline_parallel_degree == 1 ||
      reshard.place().has_value())
    return;
  reshard = false;
}

}  // namespace

absl::Status SetOption(absl::string_view key, absl::string_view value,
                       const fsdp::SourceLocation& place, Config* config) {
  for (const Option& option : AllOptions(config)) {
    if (option.key == key) return option.set(value, place);
  }
  return NoSuchOption(key);
}

absl::Status ReadOptionsText(absl::string_view name, absl::string_view text,
                             Config* config) {
  for (const dcp::SettingLine& line :
       dcp::SplitSettingLines(text, dcp::CommentStyle::kAnywhere)) {
    const std::string where = absl::StrCat(name, ":", line.number, ": ");
    if (!line.has_value) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, "not of the form key = value"));
    }
    const fsdp::SourceLocation place = {
        .file = std::string(name), .line = line.number, .key = line.key};
    const absl::Status status = SetOption(line.key, line.value, place, config);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(where, status.message()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Config> ParseFlags(const std::vector<std::string>& flags) {
  Config config = DefaultConfig();
  const absl::StatusOr<std::vector<KeyAndValue>> pairs = SplitFlags(flags);
  if (!pairs.ok()) return pairs.status();
  const absl::Status files = ReadFiles(*pairs, &config);
  if (!files.ok()) return files;
  for (const auto& [key, value] : *pairs) {
    if (key == "help") config.help = true;
    if (key == "help" || key == "config" || key == "options") continue;
    const absl::Status set =
        SetOption(key, value, {.key = absl::StrCat("--", key)}, &config);
    if (!set.ok()) return set;
  }
  if (!config.help && config.data.empty()) {
    return absl::InvalidArgumentError(
        "--data=FILE is missing: a text to learn from; see --help");
  }
  ChooseReader(&config);
  ChooseReshard(&config);
  config.train.loop.seed = std::optional<int64_t>(config.seed);
  config.train.loop.steps = std::optional<int64_t>(config.steps);
  for (const absl::Status& status :
       {CheckLoop(config), CheckAverage(config), CheckSaving(config),
        CheckOptions(config.model), CheckParallel(config)}) {
    if (!status.ok()) return status;
  }
  return config;
}

absl::Status FitBatch(int64_t num_readers, Config* config) {
  constexpr int64_t kDefaultBatch = 8;
  const fsdp::LoopConfig& loop = config->train.loop;
  const std::optional<int64_t> global = *loop.global_batch_size;
  const bool told = config->batch != 0 || config->accumulate != 0;
  if (config->accumulate == 0) {
    config->accumulate = loop.gradient_accumulation_steps->value_or(0);
  }
  if (config->batch == 0 && loop.local_batch_size->has_value()) {
    if (__builtin_mul_overflow(**loop.local_batch_size, num_readers,
                               &config->batch)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a batch of ", **loop.local_batch_size, " is too large"));
    }
  }
  if (config->batch == 0) {
    config->batch = global.has_value()
                        ? *global / std::max<int64_t>(config->accumulate, 1)
                        : kDefaultBatch;
  }
  if (config->accumulate == 0) {
    config->accumulate =
        global.has_value() && !told
            ? std::max<int64_t>(*global / std::max<int64_t>(config->batch, 1),
                                1)
            : 1;
  }
  if (config->batch % num_readers != 0 || config->batch == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--batch=", config->batch, " is not a multiple of ",
                     num_readers, " ranks that read different sequences"));
  }
  if (!told && global.has_value() &&
      (*global % config->accumulate != 0 ||
       *global / config->accumulate != config->batch)) {
    return absl::InvalidArgumentError(
        absl::StrCat(loop.global_batch_size.place().has_value()
                         ? fsdp::to_string(*loop.global_batch_size.place())
                         : "global_batch_size",
                     " is ", *global, ", not ", config->accumulate,
                     " batches of ", config->batch));
  }
  return absl::OkStatus();
}

std::string HelpText() {
  Config defaults = DefaultConfig();
  return absl::StrCat(
      kHowToTrain, "\nModel and data (defaults in brackets):\n",
      Table(ModelAndData(&defaults)), "\nTraining and sharding:\n",
      Table(TrainingAndSharding(&defaults)), "\nOther parallelisms:\n",
      Table(OtherParallelisms(&defaults)), "\nSaving:\n",
      Table(Saving(&defaults)), R"(
  --config FILE             a config of a program that fsdp-config --help
                            names; fsdp-config explains it
  --options FILE            lines of `key = value` with the keys above; they
                            override --config, and flags override both
  --help                    this text
)");
}

}  // namespace llama
