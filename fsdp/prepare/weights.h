// SPDX-License-Identifier: Apache-2.0
// The weights with which a run begins, and how they get into the sharded model.
// For prepare; on the thread that trains, collective.
//
// One of these, agreed by all ranks before anything is sharded:
//   kBuilt        as the caller built them, the same on every rank
//   kInitialised  the model is on the meta device: initialised when sharded
//   kFile         initial_load_path
//   kRank0        rank 0's; others may have built theirs on meta
//   kResumed      nothing yet: the loop resumes a step
#ifndef FSDP_PREPARE_WEIGHTS_H_
#define FSDP_PREPARE_WEIGHTS_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "config/model/train_config.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "fsdp/prepare/prepare_options.h"
#include "torch/nn/module.h"

namespace fsdp {

enum class WeightsFrom : uint8_t {
  kBuilt,
  kInitialised,
  kFile,
  kRank0,
  kResumed,
};

struct StartingWeights {
  WeightsFrom from = WeightsFrom::kBuilt;
  bool is_meta = false;  // this rank's model
  // For kRank0, when a rank's model is on meta: on rank 0, a copy of the
  // weights.
  std::optional<StateDict> whole = {};
};

// Changes nothing; an error is the same on every rank. `resumes`: the folder
// has a step to resume from.
absl::StatusOr<StartingWeights> ChooseWeights(const torch::nn::Module& module,
                                              const CheckpointConfig& config,
                                              bool resumes, c10::Device device);

// Casts parameters, and makes them equal on all ranks if rank 0's count, before
// they are cut.
absl::Status ReadyWeights(torch::nn::Module& module, const TrainConfig& config,
                          StartingWeights& weights);

// Call it after fully_shard.
absl::Status PlaceWeights(torch::nn::Module& module, const TrainConfig& config,
                          const PrepareOptions& options, c10::Device device,
                          StartingWeights& weights);

}  // namespace fsdp

#endif  // FSDP_PREPARE_WEIGHTS_H_
