// Reads transformers' DistributedConfig, its own FSDP2 without accelerate: a
// model is sharded as it is loaded. Any thread.
#ifndef FSDP_CONFIG_DIALECTS_TRANSFORMERS_DISTRIBUTED_H_
#define FSDP_CONFIG_DIALECTS_TRANSFORMERS_DISTRIBUTED_H_

#include "fsdp/config/document/document.h"
#include "fsdp/config/document/findings.h"
#include "fsdp/config/train_config.h"

namespace fsdp::config {

// Whether a file is a DistributedConfig: one of its keys that no other program
// has, or two of the others.
bool IsDistributedConfig(const Node& root);

void ReadDistributedConfig(const Node& node, TrainConfig& config,
                           Findings& findings);

}  // namespace fsdp::config

#endif  // FSDP_CONFIG_DIALECTS_TRANSFORMERS_DISTRIBUTED_H_
