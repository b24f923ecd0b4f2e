// SPDX-License-Identifier: Apache-2.0
// The sizes of a mesh in accelerate's parallelism_config, which transformers
// hands to accelerate, and in its variables. For readers. Any thread.
#ifndef CONFIG_DIALECTS_FIELDS_MESH_SIZES_H_
#define CONFIG_DIALECTS_FIELDS_MESH_SIZES_H_

#include "config/document/findings.h"
#include "config/document/section.h"
#include "config/model/train_config.h"

namespace fsdp::config {

// Reads the sizes, whose keys may begin with "parallelism_config_". A size that
// is absent beside one above 1 is 1, as in accelerate. Sizes of 1 alone mean no
// mesh. Returns whether there is one.
bool ReadParallelismOptions(Section& section, MeshConfig& mesh);

// For a file with a mesh: adds problems for sizes that accelerate refuses, once
// the version of FSDP is known; `is_fsdp` is false for copies.
void CheckMeshSizes(bool is_fsdp, const TrainConfig& config,
                    Findings& findings);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_FIELDS_MESH_SIZES_H_
