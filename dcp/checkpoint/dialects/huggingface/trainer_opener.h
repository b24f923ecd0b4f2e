// SPDX-License-Identifier: Apache-2.0
// Opens the checkpoint-N directories that the transformers Trainer writes: the
// model, the optimizer, the scheduler, random states and the trainer's state as
// one checkpoint. Any thread. Source: transformers/trainer.py,
// trainer_callback.py (5.23.0).
#ifndef DCP_CHECKPOINT_DIALECTS_HUGGINGFACE_TRAINER_OPENER_H_
#define DCP_CHECKPOINT_DIALECTS_HUGGINGFACE_TRAINER_OPENER_H_

#include <optional>
#include <stop_token>

#include "absl/status/statusor.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/files/open_options.h"

namespace dcp {

// Names are model.NAME, optimizer.state.N.exp_avg for a parameter's number N
// (no file says which parameter it is, because those with weight decay come
// first) and extra.scheduler, extra.rng_state, extra.trainer_state. Under FSDP,
// model and optimizer are accelerate's. training_args.bin is not read. Nullopt
// without trainer_state.json, weights and an optimizer: a model alone is a
// model. Cancelled once `stop` is requested.
absl::StatusOr<std::optional<CheckpointParts>> TryOpenTrainer(
    const SourceDirectory& directory, const OpenOptions& options,
    const std::stop_token& stop = {});

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_HUGGINGFACE_TRAINER_OPENER_H_
