// SPDX-License-Identifier: Apache-2.0
// Reads TorchTitan's [checkpoint]. For TorchTitan's reader. Any thread.
#ifndef CONFIG_DIALECTS_TORCHTITAN_CHECKPOINT_H_
#define CONFIG_DIALECTS_TORCHTITAN_CHECKPOINT_H_

#include <string>

#include "config/document/section.h"
#include "config/model/train_config.h"

namespace fsdp::config {

// `dump_folder` is the job's folder, which contains the checkpoints' folder.
void ReadCheckpoint(Section section, const std::string& dump_folder,
                    CheckpointConfig& checkpoint);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_TORCHTITAN_CHECKPOINT_H_
