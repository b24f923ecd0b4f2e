// SPDX-License-Identifier: Apache-2.0
// Config: the options for a run of train_llama; flags.h reads them. Pure
// values; any thread.
#ifndef FSDP_EXAMPLES_TRAIN_LLAMA_CONFIG_H_
#define FSDP_EXAMPLES_TRAIN_LLAMA_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "config/model/train_config.h"
#include "fsdp/examples/train_llama/model.h"

namespace llama {

struct Config {
  ModelOptions model;

  std::string data;
  int64_t seq_len = 64;
  // Sequences on all ranks together, times `accumulate` for the optimizer. 0:
  // FitBatch derives it from the config.
  int64_t batch = 0;
  int64_t accumulate = 0;
  int64_t steps = 50;
  int64_t seed = 0;

  std::string optimizer = "adamw";
  // The largest gradient norm; 0: no limit.
  double clip = 1.0;
  // The average of the weights: by the decay `ema`, or else, from the step
  // `average_from` on, with equal weights. Neither: none.
  std::optional<double> ema;
  int64_t average_from = 0;
  int64_t average_every = 1;
  bool has_average() const { return ema.has_value() || average_from > 0; }

  // Options for parallelisms in addition to the degrees in `train`.
  bool sequence_parallel = false;
  std::string plan;  // a file; empty: the plan in `train`, or the built-in one
  int64_t microbatches = 0;  // 0: FitMicrobatches sets it
  std::string pipeline_schedule = "1f1b";
  int64_t stages_per_rank = 0;  // 0: see StagesPerRank

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

}  // namespace llama

#endif  // FSDP_EXAMPLES_TRAIN_LLAMA_CONFIG_H_
