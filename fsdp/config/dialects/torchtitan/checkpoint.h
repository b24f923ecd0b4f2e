// Reads TorchTitan's [checkpoint]. For the reader of TorchTitan. Any thread.
#ifndef FSDP_CONFIG_DIALECTS_TORCHTITAN_CHECKPOINT_H_
#define FSDP_CONFIG_DIALECTS_TORCHTITAN_CHECKPOINT_H_

#include <string>

#include "fsdp/config/document/section.h"
#include "fsdp/config/train_config.h"

namespace fsdp::config {

// `dump_folder` is that of the job, in which the folder of checkpoints is.
void ReadCheckpoint(Section section, const std::string& dump_folder,
                    CheckpointConfig& checkpoint);

}  // namespace fsdp::config

#endif  // FSDP_CONFIG_DIALECTS_TORCHTITAN_CHECKPOINT_H_
