// SPDX-License-Identifier: Apache-2.0
// Reads axolotl's degrees. Any thread.
#ifndef CONFIG_DIALECTS_AXOLOTL_MESH_H_
#define CONFIG_DIALECTS_AXOLOTL_MESH_H_

#include "config/document/section.h"
#include "config/model/train_config.h"

namespace fsdp::config {

// `is_fsdp`: whether the file has FSDP options. Without them axolotl trains
// copies, and experts and sequences may still be divided.
void ReadAxolotlMesh(Section& root, bool is_fsdp, MeshConfig& mesh);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_AXOLOTL_MESH_H_
