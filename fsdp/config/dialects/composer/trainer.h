// Reads the keys next to parallelism_config in the files of Composer and of LLM
// Foundry: arguments of the Trainer about saves, loads and the loop. For
// ReadComposer. Any thread.
#ifndef FSDP_CONFIG_DIALECTS_COMPOSER_TRAINER_H_
#define FSDP_CONFIG_DIALECTS_COMPOSER_TRAINER_H_

#include "fsdp/config/document/section.h"
#include "fsdp/config/train_config.h"

namespace fsdp::config {

// `is_foundry`: the file is LLM Foundry's, which saves every 1000 batches.
void ReadComposerSaves(Section& root, bool is_foundry,
                       CheckpointConfig& checkpoint);
void ReadComposerLoads(Section& root, CheckpointConfig& checkpoint);
// Reads steps, batches, optimizer, clipping, and the dtype of the weights.
void ReadComposerLoop(Section& root, TrainConfig& config);

}  // namespace fsdp::config

#endif  // FSDP_CONFIG_DIALECTS_COMPOSER_TRAINER_H_
