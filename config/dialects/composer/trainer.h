// SPDX-License-Identifier: Apache-2.0
// Reads the keys next to parallelism_config in Composer's and LLM Foundry's
// files: Trainer arguments about saves, loads and the loop. For ReadComposer.
// Any thread.
#ifndef CONFIG_DIALECTS_COMPOSER_TRAINER_H_
#define CONFIG_DIALECTS_COMPOSER_TRAINER_H_

#include "config/document/section.h"
#include "config/model/train_config.h"

namespace fsdp::config {

// `is_foundry`: the file is LLM Foundry's, which saves every 1000 batches.
void ReadComposerSaves(Section& root, bool is_foundry,
                       CheckpointConfig& checkpoint);
void ReadComposerLoads(Section& root, CheckpointConfig& checkpoint);
// Reads steps, batches, optimizer, clipping, and the weights' dtype.
void ReadComposerLoop(Section& root, TrainConfig& config);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_COMPOSER_TRAINER_H_
