// SPDX-License-Identifier: Apache-2.0
// The mesh sizes in accelerate's parallelism_config, which accelerate also
// receives from transformers and from variables. For readers. Any thread.
#ifndef CONFIG_DIALECTS_FIELDS_MESH_SIZES_H_
#define CONFIG_DIALECTS_FIELDS_MESH_SIZES_H_

#include "config/document/findings.h"
#include "config/document/section.h"
#include "config/model/train_config.h"

namespace fsdp::config {

// Reads the sizes. Their keys may begin with "parallelism_config_". If one size
// is above 1, absent sizes are 1, as in accelerate. Sizes of 1 alone mean no
// mesh. Returns whether there is one.
bool ReadParallelismOptions(Section& section, MeshConfig& mesh);

// For a file with a mesh: adds problems for sizes that accelerate refuses, once
// the FSDP version is known; `is_fsdp` is false for copies.
void CheckMeshSizes(bool is_fsdp, const TrainConfig& config,
                    Findings& findings);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_FIELDS_MESH_SIZES_H_
