// SPDX-License-Identifier: Apache-2.0
// The lines about ranks in an explanation: how each axis of the mesh divides
// the work, and how layers are cut. Pure; any thread.
#ifndef TOOLS_FSDP_CONFIG_MESH_TEXT_H_
#define TOOLS_FSDP_CONFIG_MESH_TEXT_H_

#include <string>

#include "config/explain/mesh_plan.h"
#include "config/model/train_config.h"

namespace fsdp::tools {

// "Mesh: 16 ranks: 2 copies x 8 shards", and a line for each axis.
std::string MeshText(const MeshConfig& config, const MeshPlan& mesh);

// The place of the tensor parallelism plan; empty without one.
std::string LayersText(const MeshConfig& mesh);

}  // namespace fsdp::tools

#endif  // TOOLS_FSDP_CONFIG_MESH_TEXT_H_
