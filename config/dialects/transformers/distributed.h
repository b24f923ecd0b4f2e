// SPDX-License-Identifier: Apache-2.0
// Reads transformers' DistributedConfig, which is FSDP2 without accelerate: a
// model is sharded while it is loaded. Any thread.
#ifndef CONFIG_DIALECTS_TRANSFORMERS_DISTRIBUTED_H_
#define CONFIG_DIALECTS_TRANSFORMERS_DISTRIBUTED_H_

#include "config/document/document.h"
#include "config/document/findings.h"
#include "config/model/train_config.h"

namespace fsdp::config {

// Whether a file is a DistributedConfig: it has a key that no other program
// has, or two of the others.
bool IsDistributedConfig(const Node& root);

void ReadDistributedConfig(const Node& node, TrainConfig& config,
                           Findings& findings);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_TRANSFORMERS_DISTRIBUTED_H_
