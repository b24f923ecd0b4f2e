// What a run of train_llama is told: a file of `key = value` lines, and flags
// `--key=value` that override it. Both know the same keys; an unknown one is
// refused by name. Pure values; any thread.
#ifndef FSDP_EXAMPLES_TRAIN_LLAMA_CONFIG_H_
#define FSDP_EXAMPLES_TRAIN_LLAMA_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "fsdp/examples/train_llama/model.h"

namespace llama {

struct Config {
  ModelOptions model;

  std::string data;
  int64_t seq_len = 64;
  // Of all ranks together; times `accumulate` for the optimizer.
  int64_t batch = 8;
  int64_t steps = 50;
  int64_t accumulate = 1;
  int64_t seed = 0;

  std::string optimizer = "adamw";
  double lr = 3e-3;
  double weight_decay = 0.1;
  // The largest norm of the gradients; 0: any.
  double clip = 1.0;

  std::string device = "cpu";
  int64_t replicate = 1;
  // 0: all ranks, divided by `replicate`.
  int64_t shard = 0;
  // "auto", "true", "false", or a number of ranks.
  std::string reshard_after_forward = "auto";
  // "float32", "bfloat16", or "float16".
  std::string param_dtype = "float32";
  std::string reduce_dtype = "float32";
  bool deterministic_init = false;

  // Empty: no checkpoints.
  std::string checkpoint_dir;
  // Steps; 0: after the last only.
  int64_t save_every = 0;
  // 0: all.
  int64_t keep_last = 0;
  int64_t keep_every = 0;
  std::string init_from;
  std::string export_to;

  int64_t log_every = 5;
  std::string losses_out;
  bool help = false;
};

// Sets the key of one line or flag; names and values as a user writes them.
absl::Status SetOption(absl::string_view key, absl::string_view value,
                       Config* config);

// All lines of a file's text; `name` is for errors. '#' begins a comment.
absl::Status ReadConfigText(absl::string_view name, absl::string_view text,
                            Config* config);

// The flags after the name of the program: --config=FILE first, whatever its
// place, then the others. "--key value" and, for switches, "--key" work too.
absl::StatusOr<Config> ParseFlags(const std::vector<std::string>& flags);

// What --help prints.
std::string HelpText();

}  // namespace llama

#endif  // FSDP_EXAMPLES_TRAIN_LLAMA_CONFIG_H_
