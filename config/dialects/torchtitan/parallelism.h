// SPDX-License-Identifier: Apache-2.0
// Reads a TorchTitan mesh's degrees, in each version's section, and
// [parallelism]. For TorchTitan's reader. Any thread.
#ifndef CONFIG_DIALECTS_TORCHTITAN_PARALLELISM_H_
#define CONFIG_DIALECTS_TORCHTITAN_PARALLELISM_H_

#include "config/document/section.h"
#include "config/model/train_config.h"

namespace fsdp::config {

// Before 0.1 degrees were in [training] and [experimental]. One that is in
// [parallelism] as well is a problem, because TorchTitan reads only one of
// them.
void ReadOlderDegrees(const Node& parallelism, Section& training,
                      Section& experimental, MeshConfig& mesh);

void ReadParallelism(Section section, TrainConfig& config);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_TORCHTITAN_PARALLELISM_H_
