// The options of a run of train_llama: a config of accelerate, transformers,
// Composer or TorchTitan, a file of `key = value` lines, and flags
// `--key=value`; the later of these override the earlier. Lines and flags have
// the same keys; an unknown one is refused by name. Pure values; any thread.
#ifndef FSDP_EXAMPLES_TRAIN_LLAMA_CONFIG_H_
#define FSDP_EXAMPLES_TRAIN_LLAMA_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "fsdp/config/document/setting.h"
#include "fsdp/config/train_config.h"
#include "fsdp/examples/train_llama/model.h"

namespace llama {

struct Config {
  ModelOptions model;

  std::string data;
  int64_t seq_len = 64;
  // Sequences of all ranks together, times `accumulate` for the optimizer. 0:
  // FitBatch derives it from the config.
  int64_t batch = 0;
  int64_t accumulate = 0;
  int64_t steps = 50;
  int64_t seed = 0;

  std::string optimizer = "adamw";
  // The largest norm of the gradients; 0: no limit.
  double clip = 1.0;

  // What parallelisms need in addition to the degrees of `train`.
  bool sequence_parallel = false;
  std::string plan;  // a file; empty: that of `train`, or one that is built in
  int64_t microbatches = 0;  // 0: FitMicrobatches sets it
  std::string pipeline_schedule = "1f1b";

  std::string device = "cpu";
  bool deterministic_init = false;
  int64_t keep_every = 0;
  std::string export_to;
  int64_t log_every = 5;
  std::string losses_out;
  bool help = false;

  // Meshes, precision, sharding, checkpoints, and AdamW's numbers and schedule:
  // the file of --config, as changed by flags.
  fsdp::TrainConfig train;
  bool has_file = false;
};

// Sets the key of one line or flag; names and values as a user writes them.
// `place` is kept for errors that only the ranks or the model can tell.
absl::Status SetOption(absl::string_view key, absl::string_view value,
                       const fsdp::SourceLocation& place, Config* config);

// All lines of a file's text; `name` is for errors. '#' begins a comment.
absl::Status ReadOptionsText(absl::string_view name, absl::string_view text,
                             Config* config);

// `flags` follow the name of the program. --config=FILE is read first, then
// --options=FILE, wherever they are, then the others. "--key value" and, for
// switches, "--key" work too.
absl::StatusOr<Config> ParseFlags(const std::vector<std::string>& flags);

// To be called once it is known how many ranks read different data: fills
// `batch` and `accumulate` if no flag did, from the config's batch sizes or by
// default. Returns InvalidArgument for numbers that do not fit together.
absl::Status FitBatch(int64_t num_readers, Config* config);

// The text that --help prints.
std::string HelpText();

}  // namespace llama

#endif  // FSDP_EXAMPLES_TRAIN_LLAMA_CONFIG_H_
