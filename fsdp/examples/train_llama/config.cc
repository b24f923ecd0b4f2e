#include "fsdp/examples/train_llama/config.h"

#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace llama {
namespace {

struct Integer {
  int64_t* value;
  int64_t least;
};
struct Real {
  double* value;
  double least;
};
struct Text {
  std::string* value;
  std::vector<std::string> choices;  // empty: anything
};
struct Switch {
  bool* value;
};

struct Option {
  std::string key;
  std::variant<Integer, Real, Text, Switch> target;
  std::string help;
};

const std::vector<std::string>& Dtypes() {
  static const auto& dtypes =
      *new std::vector<std::string>{"float32", "bfloat16", "float16"};
  return dtypes;
}

// The one list of keys; each writes into `c`.
std::vector<Option> ModelAndData(Config* c) {
  ModelOptions& m = c->model;
  return {
      {"data", Text{&c->data, {}}, "a text file; its bytes are the tokens"},
      {"seq-len", Integer{&c->seq_len, 1}, "bytes in a sequence"},
      {"batch", Integer{&c->batch, 1}, "sequences of all ranks together"},
      {"accumulate", Integer{&c->accumulate, 1},
       "batches of one step, reduced after the last"},
      {"steps", Integer{&c->steps, 1}, "of the optimizer"},
      {"seed", Integer{&c->seed, 0}, "of the weights and of the data"},
      {"dim", Integer{&m.dim, 1}, "width of the model"},
      {"layers", Integer{&m.num_layers, 1}, "number of blocks"},
      {"heads", Integer{&m.num_heads, 1}, "of attention"},
      {"kv-heads", Integer{&m.num_kv_heads, 1},
       "heads of keys and values; fewer than heads: grouped-query"},
      {"ffn-dim", Integer{&m.ffn_dim, 1}, "width inside the feed-forward"},
      {"tied-embeddings", Switch{&m.tied_embeddings},
       "the output layer is the embedding"},
  };
}

std::vector<Option> TrainingAndSharding(Config* c) {
  return {
      {"optimizer", Text{&c->optimizer, {"adamw", "fused_adamw"}},
       "torch::optim::AdamW, or one call for all shards"},
      {"lr", Real{&c->lr, 0}, "learning rate"},
      {"weight-decay", Real{&c->weight_decay, 0}, "of AdamW"},
      {"clip", Real{&c->clip, 0}, "largest norm of the gradients; 0: any"},
      {"device", Text{&c->device, {"cpu", "cuda"}}, "where to train"},
      {"replicate", Integer{&c->replicate, 1},
       "copies of the model; more than 1 is HSDP"},
      {"shard", Integer{&c->shard, 0},
       "ranks that share a copy; 0: all, divided by --replicate"},
      {"reshard-after-forward", Text{&c->reshard_after_forward, {}},
       "auto, true, false, or to how many ranks"},
      {"param-dtype", Text{&c->param_dtype, Dtypes()}, "to compute with"},
      {"reduce-dtype", Text{&c->reduce_dtype, Dtypes()},
       "to reduce gradients with"},
      {"checkpoint-activations", Switch{&c->model.checkpoint_activations},
       "compute blocks again in backward"},
      {"deterministic-init", Switch{&c->deterministic_init},
       "build on meta; each rank makes only its part"},
      {"log-every", Integer{&c->log_every, 1}, "steps between progress lines"},
      {"losses-out", Text{&c->losses_out, {}},
       "a file for the losses, one a line"},
  };
}

std::vector<Option> Saving(Config* c) {
  return {
      {"checkpoint-dir", Text{&c->checkpoint_dir, {}},
       "a folder for step-N; go on from the newest there"},
      {"save-every", Integer{&c->save_every, 0},
       "steps between saves; 0: after the last, and on SIGTERM"},
      {"keep-last", Integer{&c->keep_last, 0},
       "the newest so many steps; 0: all"},
      {"keep-every", Integer{&c->keep_every, 0},
       "of older steps, those of every so many; 0: none"},
      {"init-from", Text{&c->init_from, {}},
       "weights to begin with; rank 0 reads them, or a dcp-server"},
      {"export", Text{&c->export_to, {}},
       "the model in the end, whole: a .safetensors, .pt or folder"},
  };
}

std::vector<Option> AllOptions(Config* config) {
  std::vector<Option> options = ModelAndData(config);
  for (const auto& more : {TrainingAndSharding(config), Saving(config)}) {
    options.insert(options.end(), more.begin(), more.end());
  }
  return options;
}

// What makes no sense alone.
absl::Status CheckSaving(const Config& config) {
  const std::vector<std::pair<std::string, bool>> need_a_folder = {
      {"save-every", config.save_every > 0},
      {"keep-last", config.keep_last > 0},
      {"keep-every", config.keep_every > 0},
      {"export", !config.export_to.empty()}};
  for (const auto& [key, is_set] : need_a_folder) {
    if (is_set && config.checkpoint_dir.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", key, " needs --checkpoint-dir=FOLDER, where steps are saved"));
    }
  }
  if (config.keep_every > 0 && config.keep_last == 0) {
    return absl::InvalidArgumentError(
        "--keep-every needs --keep-last, without which all steps are kept");
  }
  return absl::OkStatus();
}

absl::Status Refuse(absl::string_view key, absl::string_view value,
                    absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat(key, " is '", value, "', not ", wanted));
}

absl::Status Set(const Option& option, absl::string_view value) {
  if (const auto* integer = std::get_if<Integer>(&option.target)) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(value, &number) || number < integer->least) {
      return Refuse(option.key, value,
                    absl::StrCat("a whole number from ", integer->least));
    }
    *integer->value = number;
  } else if (const auto* real = std::get_if<Real>(&option.target)) {
    double number = 0;
    if (!absl::SimpleAtod(value, &number) || !(number >= real->least) ||
        number > std::numeric_limits<double>::max()) {
      return Refuse(option.key, value,
                    absl::StrCat("a number from ", real->least));
    }
    *real->value = number;
  } else if (const auto* text = std::get_if<Text>(&option.target)) {
    for (const std::string& choice : text->choices) {
      if (choice == value) *text->value = choice;
    }
    if (text->choices.empty()) {
      *text->value = std::string(value);
    } else if (*text->value != value) {
      return Refuse(option.key, value, absl::StrJoin(text->choices, " or "));
    }
  } else if (!absl::SimpleAtob(value, std::get<Switch>(option.target).value)) {
    return Refuse(option.key, value, "true or false");
  }
  return absl::OkStatus();
}

std::string DefaultOf(const Option& option) {
  if (const auto* integer = std::get_if<Integer>(&option.target)) {
    return absl::StrCat(*integer->value);
  }
  if (const auto* real = std::get_if<Real>(&option.target)) {
    return absl::StrCat(*real->value);
  }
  if (const auto* text = std::get_if<Text>(&option.target)) {
    return *text->value;
  }
  return "";
}

bool IsSwitch(absl::string_view key) {
  Config scratch;
  for (const Option& option : AllOptions(&scratch)) {
    if (option.key == key) {
      return std::holds_alternative<Switch>(option.target);
    }
  }
  return key == "help";
}

absl::Status ReadConfigFile(const std::string& path, Config* config) {
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)),
                         std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad()) {
    return absl::NotFoundError(absl::StrCat("cannot read config '", path, "'"));
  }
  return ReadConfigText(path, text, config);
}

using KeyAndValue = std::pair<std::string, std::string>;

// "--key=value", "--key value" and "--switch", taken apart.
absl::StatusOr<std::vector<KeyAndValue>> TakeApart(
    const std::vector<std::string>& flags) {
  std::vector<KeyAndValue> pairs;
  for (size_t i = 0; i < flags.size(); ++i) {
    absl::string_view flag = flags[i];
    if (flag == "-h") flag = "--help";
    if (!absl::ConsumePrefix(&flag, "--")) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", flags[i], "' is no flag; see --help"));
    }
    const size_t equals = flag.find('=');
    if (equals != absl::string_view::npos) {
      pairs.emplace_back(flag.substr(0, equals), flag.substr(equals + 1));
    } else if (IsSwitch(flag)) {
      pairs.emplace_back(flag, "true");
    } else if (i + 1 < flags.size()) {
      pairs.emplace_back(flag, flags[++i]);
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, " needs a value; see --help"));
    }
  }
  return pairs;
}

std::string Table(const std::vector<Option>& options) {
  std::string text;
  for (const Option& option : options) {
    const std::string value = DefaultOf(option);
    absl::StrAppendFormat(&text, "  --%-24s%s", option.key, option.help);
    if (!value.empty()) absl::StrAppend(&text, " (", value, ")");
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace

absl::Status SetOption(absl::string_view key, absl::string_view value,
                       Config* config) {
  for (const Option& option : AllOptions(config)) {
    if (option.key == key) return Set(option, value);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no option '", key, "'; see --help"));
}

absl::Status ReadConfigText(absl::string_view name, absl::string_view text,
                            Config* config) {
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const size_t equals = line.find('=');
    absl::Status status =
        equals == absl::string_view::npos
            ? absl::InvalidArgumentError("not of the form key = value")
            : SetOption(absl::StripAsciiWhitespace(line.substr(0, equals)),
                        absl::StripAsciiWhitespace(line.substr(equals + 1)),
                        config);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ":", number, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Config> ParseFlags(const std::vector<std::string>& flags) {
  Config config;
  const absl::StatusOr<std::vector<KeyAndValue>> pairs = TakeApart(flags);
  if (!pairs.ok()) return pairs.status();
  for (const auto& [key, value] : *pairs) {
    if (key == "help") config.help = true;
    if (key != "config") continue;
    const absl::Status read = ReadConfigFile(value, &config);
    if (!read.ok()) return read;
  }
  for (const auto& [key, value] : *pairs) {
    if (key == "help" || key == "config") continue;
    const absl::Status set = SetOption(key, value, &config);
    if (!set.ok()) return set;
  }
  if (!config.help && config.data.empty()) {
    return absl::InvalidArgumentError(
        "--data=FILE is missing: a text to learn from; see --help");
  }
  for (const absl::Status& status :
       {CheckSaving(config), CheckOptions(config.model)}) {
    if (!status.ok()) return status;
  }
  return config;
}

std::string HelpText() {
  Config defaults;
  return absl::StrCat(
      R"(Trains a small Llama on the bytes of a text, sharded over all ranks.

One process:
  train_llama --data=book.txt
Four, started by PyTorch's launcher, or by hand:
  torchrun --no-python --nproc-per-node=4 train_llama --data=book.txt
  for rank in 0 1 2 3; do
    RANK=$rank WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 \
      train_llama --data=book.txt &
  done; wait
The losses are those of one process: the batch of a step is the same, each
rank takes its slice.

What to try:
  --replicate=2                  HSDP: two copies, each over half of the ranks
  --reshard-after-forward=false  keep parameters until backward: ZeRO-2
  --param-dtype=bfloat16         compute in bfloat16, reduce in float32
  --checkpoint-activations       less memory, a third more arithmetic
  --deterministic-init           no rank ever holds the whole model

A run with a folder can be killed, and goes on from its newest step, with the
same losses, on as many processes as there are then:
  torchrun --no-python --nproc-per-node=4 train_llama --data=book.txt \
    --steps=1000 --checkpoint-dir=run --save-every=100 --keep-last=2
  kill -9 ...                            or SIGTERM, which saves first
  torchrun --no-python --nproc-per-node=2 train_llama --data=book.txt \
    --steps=1000 --checkpoint-dir=run --save-every=100 --keep-last=2 \
    --export=model.safetensors
Saves are written while training goes on. dcp-convert and PyTorch read the
steps and the export; another run begins with it:
  train_llama --data=other.txt --init-from=model.safetensors
as it does with a step that a dcp-server has, of which each rank gets its own
shards, on whatever mesh it was saved (TESSERA_TOKEN is the token, if any):
  train_llama --data=other.txt --init-from=tessera://host:7420/srv/run/step-900

Model and data (defaults in brackets):
)",
      Table(ModelAndData(&defaults)), "\nTraining and sharding:\n",
      Table(TrainingAndSharding(&defaults)), "\nSaving:\n",
      Table(Saving(&defaults)), R"(
  --config FILE             lines of `key = value` with the keys above; flags
                            override it
  --help                    this text
)");
}

}  // namespace llama
